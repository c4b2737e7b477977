"""Redis streams. Only this package names their library."""
