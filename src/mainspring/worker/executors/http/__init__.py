"""The task `http`."""
