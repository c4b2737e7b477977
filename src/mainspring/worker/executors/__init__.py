"""The executors of Python functions, and registry.py, which adds those of the kinds of task (kinds/)."""
