"""Renders the HTML page of jobs/report.py. Its data come from answers/report.py."""
