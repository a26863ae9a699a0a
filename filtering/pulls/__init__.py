"""The broker's answer to a pull, and what the pull costs the broker."""
