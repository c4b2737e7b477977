"""Effects that happen once: a run's key in the user's own database and transaction."""
