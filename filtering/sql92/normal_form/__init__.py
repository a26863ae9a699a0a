"""Predicates simplified and ordered, so that equal ones are one object as far as that is cheap to tell."""
