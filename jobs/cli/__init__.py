"""What the jobs share: options, exit codes, messages, and how tables of text look."""
