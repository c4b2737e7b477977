"""RabbitMQ. Only this package names its library."""
