"""The segments of a commitlog and their records."""
