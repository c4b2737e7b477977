"""When a job is due: schedules, cron expressions and misfires."""
