"""Brokers: events go out to them and come in from them. Each broker is one package, and its library is an extra."""
