"""Lengths of time in milliseconds."""

DAY = 86_400_000
