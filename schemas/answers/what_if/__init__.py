"""What another filter would have delivered."""
