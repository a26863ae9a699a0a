"""The bytes of a broker's log that a night reads."""
