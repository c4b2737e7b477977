"""Notifications: kinds of channels, rules, and the texts and requests of messages. No I/O."""
