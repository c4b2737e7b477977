"""From a request to a job definition: what may be said, and how it is checked."""
