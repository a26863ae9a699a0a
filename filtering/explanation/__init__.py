"""Explains why a group gets a message or not: which filter stops it, how, and which similar message would pass."""
