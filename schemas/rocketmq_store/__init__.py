"""The broker's own files: commit log segments, consume queues, and their extension."""
