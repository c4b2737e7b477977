"""Python functions in child interpreters."""
