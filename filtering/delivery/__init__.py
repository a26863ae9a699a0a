"""The broker's two passes over a log, an Arrow batch at a time: dispatch writes entries, delivery filters them."""
