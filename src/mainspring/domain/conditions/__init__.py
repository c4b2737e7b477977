"""Conditions on events: a bounded part of CEL, without side effects."""
