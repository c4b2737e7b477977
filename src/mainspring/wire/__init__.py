"""The messages of the HTTP API v1. One typed struct is the model, the validation and the OpenAPI schema."""
