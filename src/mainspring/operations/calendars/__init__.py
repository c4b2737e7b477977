"""Calendars: how they change, how jobs get their rules, and how next fires follow a change."""
