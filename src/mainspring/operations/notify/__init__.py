"""Notifications: channels, rules, and the messages that tell people what has happened."""
