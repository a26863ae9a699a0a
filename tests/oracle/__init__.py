"""Asks the published jars of any RocketMQ all stored questions. Needs Java 17 and Maven; CI does not run it."""
