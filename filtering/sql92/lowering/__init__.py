"""Lowering: turns the syntax tree into predicates for the outcomes TRUE, FALSE and ERROR."""
