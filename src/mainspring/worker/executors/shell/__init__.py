"""Shell commands, plain or in a sandbox."""
