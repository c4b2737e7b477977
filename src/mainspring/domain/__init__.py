"""What Mainspring is, without I/O and without clock reads: jobs, runs, schedules, transitions, retries, errors."""
