"""Subscription events, and the history of the subscriptions in force that they lead to."""
