"""Tenants, tokens, and who may do what."""
