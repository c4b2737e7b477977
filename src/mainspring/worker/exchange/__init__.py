"""The worker's side of the exchange: what to send, when, to which server."""
