"""Consumers that pop: what the broker writes down of them, and what it means (docs/POP.md)."""
