"""Sends messages with apprise, in a child process for each message."""
