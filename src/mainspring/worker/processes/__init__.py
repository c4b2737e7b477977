"""Processes that runs start: commands, their supervisors, the watchdog."""
