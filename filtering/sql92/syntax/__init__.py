"""The text of an expression, its tokens, and its syntax tree."""
