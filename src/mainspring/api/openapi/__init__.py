"""The OpenAPI document, derived from the routes, their signatures and the structs."""
