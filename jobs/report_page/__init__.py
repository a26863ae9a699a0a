"""The HTML page of jobs/report.py: what it shows is in schemas/answers/report_data.py."""
