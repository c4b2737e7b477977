"""Pages and searches: cursors, filters of lists, and how long a search may take."""
