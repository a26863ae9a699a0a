"""Reads the broker's own files: commit log segments, consume queues, their extension, and configuration."""
