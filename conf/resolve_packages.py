"""Nothing to run: spark-submit resolves its --packages before it comes here."""
