"""The consume queues, and their extension files."""
