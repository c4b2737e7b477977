"""Signatures of tasks: which ones are known, and how payloads are checked against them."""
