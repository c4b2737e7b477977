"""Kafka. Only this package names its library."""
