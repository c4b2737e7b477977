"""The exit codes of the command line."""

FAILURE = 1
BAD_INPUT = 2
NOT_FOUND = 3
CONFLICT = 4
NOT_ALLOWED = 5
UNAVAILABLE = 6
INTERRUPTED = 130
