"""Maintenance of a warehouse: deletes old files and rows, and rebuilds damaged tables."""
