"""Submission: stores requests as jobs and runs."""
