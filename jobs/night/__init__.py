"""One night of one broker: what is new in its log and its subscriptions, as rows of all tables."""
