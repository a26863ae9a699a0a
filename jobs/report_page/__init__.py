"""Renders the HTML page of jobs/report.py. Its data come from schemas/answers/report/report.py."""
