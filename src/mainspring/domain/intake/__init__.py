"""Intake: checks requests and turns them into job definitions."""
