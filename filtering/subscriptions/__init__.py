"""Who subscribed to what, when: subscription events in, the history of what was in force out."""
