"""Effects that happen once: a run's key is stored in the user's own database and transaction."""
