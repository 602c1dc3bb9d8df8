"""The operators as functions of ATen operators alone."""
