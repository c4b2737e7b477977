"""What an application declares: tasks, schedules, options."""
