"""RabbitMQ: classic and quorum queues."""
