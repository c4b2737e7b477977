"""NATS JetStream. Only this package names its library."""
