"""What a pull would have returned, and what it costs the broker."""
