"""The commit of a run: its tables, and last its row of run_ledger."""
