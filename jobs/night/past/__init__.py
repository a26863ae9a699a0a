"""What earlier runs left, and what of it is read again or repeated."""
