"""Which subscription filters a message, and when a group can pull it (docs/CONSUMPTION.md)."""
