"""One night of one broker: turns what is new in its log and subscriptions into rows of all tables."""
