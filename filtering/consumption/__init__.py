"""When a group can pull a message, and which subscription filters it then (docs/CONSUMPTION.md)."""
