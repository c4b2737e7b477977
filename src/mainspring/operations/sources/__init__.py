"""Sources: what connectors read from brokers becomes events and jobs, once."""
