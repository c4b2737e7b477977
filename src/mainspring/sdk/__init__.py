"""The Python SDK: tasks and schedules of an application, and clients of a server. It speaks HTTP, never SQL."""
