"""When a job is due: schedules, cron, and what happens to fires that are late."""
