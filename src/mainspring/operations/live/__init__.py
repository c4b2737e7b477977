"""The event stream: what people look at, and who is told that it has changed."""
