"""Processes that runs start: commands, their supervisors, the watchdog. And those above the worker process: launch,
parent_watchdog, death_record, death_notice."""
