"""Job files: YAML or TOML with jobs, workflows, calendars, limits, notifications, secrets and quotas."""
