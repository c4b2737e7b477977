"""The HTTP v1 messages: typed structs that are model, validation, OpenAPI and wire at once."""
