"""Changes to what exists: update, pause, resume, delete, run now, cancel, replay, drain."""
