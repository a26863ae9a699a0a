"""Predicates as Spark SQL text."""
