"""The table of operators, and what is derived from it."""
