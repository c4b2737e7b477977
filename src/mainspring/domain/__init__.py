"""The rules of jobs, runs, schedules, transitions, retries and errors. No I/O and no clock reads."""
