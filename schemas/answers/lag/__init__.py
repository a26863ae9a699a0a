"""How far groups are behind."""
