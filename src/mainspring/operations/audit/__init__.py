"""The audit: who changed what."""
