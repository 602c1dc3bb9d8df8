"""The operators: their table, and what it leads to."""
