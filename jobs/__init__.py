"""One module for each job: it reads the command line, runs the job and exits with a code."""
