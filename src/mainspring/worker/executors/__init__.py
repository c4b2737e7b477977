"""One package per kind of task. A new kind is an `Executor` and a line in registry.py."""
