"""The tasks of a night, which run on workers."""
