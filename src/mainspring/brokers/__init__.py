"""Brokers: Kafka, NATS JetStream, RabbitMQ and Redis streams. Only the package of a broker names its library, which an
extra installs."""
