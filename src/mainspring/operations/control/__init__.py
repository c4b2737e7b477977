"""Changes to existing jobs, runs and workers: update, pause, resume, delete, run now, cancel, replay, drain."""
