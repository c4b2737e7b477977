"""`mainspring bench`: figures from the real processes, over HTTP, on a fresh PostgreSQL with fsync on."""
