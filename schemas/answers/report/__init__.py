"""What happened in a night, for a summary and for the page of a report."""
