"""Events that applications emit: stored, listed, and matched with the jobs that they start."""
