"""The syntax tree lowered to predicates: where the outcome is TRUE, FALSE or ERROR."""
