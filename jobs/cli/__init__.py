"""Code that the jobs share: options, exit codes, error messages, text tables and the Spark session."""
