"""What runs print and how far they have come, on the way to a server."""
