"""Sinks: changes of jobs and runs are sent to webhooks and brokers."""
