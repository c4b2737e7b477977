"""Tasks: functions with a name and default options, their context, and how they are submitted."""
