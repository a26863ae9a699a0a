"""What the user gave a night: options, the copy of a store, subscriptions, filter hooks."""
