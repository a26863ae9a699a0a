"""Predicates in normal form: simplified and sorted, so that most equal predicates are one object."""
