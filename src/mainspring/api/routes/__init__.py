"""The routes, one module per noun."""
