"""Renders the HTML page of jobs/report.py. Its data come from schemas/answers/report_data.py."""
