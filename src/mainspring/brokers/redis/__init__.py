"""Redis streams."""
