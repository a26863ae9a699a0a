"""One module, one spark-submit application: parse, wire, run, exit code. No filtering logic."""
