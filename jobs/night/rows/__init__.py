"""The rows that the driver of a night adds."""
