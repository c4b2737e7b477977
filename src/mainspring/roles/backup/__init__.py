"""Backups of the embedded PostgreSQL: base backups, the archive of its WAL, and restore."""
