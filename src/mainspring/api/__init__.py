"""HTTP: the app, who may call it, what errors look like, and the routes."""
