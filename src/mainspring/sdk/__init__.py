"""The Python SDK: tasks and schedules of an application, and clients of a server. It uses HTTP, never SQL."""
