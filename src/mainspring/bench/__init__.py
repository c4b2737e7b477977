"""`mainspring bench`: measures the real processes over HTTP, with a fresh PostgreSQL that has fsync on."""
