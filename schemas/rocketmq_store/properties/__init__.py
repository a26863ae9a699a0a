"""The properties in a record."""
