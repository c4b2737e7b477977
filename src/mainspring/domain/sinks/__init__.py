"""Sinks: where changes of jobs and runs are sent, and as what."""
