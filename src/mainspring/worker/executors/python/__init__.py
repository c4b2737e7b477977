"""Python functions on the event loop or in threads."""
