"""From requests to stored jobs and runs."""
