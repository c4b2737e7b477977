"""The HTTP API: the app, authentication, problem documents and routes."""
