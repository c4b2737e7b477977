"""The worker's call at the server: heartbeat, report, claim, long poll, stop."""
