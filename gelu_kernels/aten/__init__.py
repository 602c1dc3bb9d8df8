"""The operators, composed only of ATen operators."""
