"""The lowest layer: clocks, ids, settings, logging and periodic tasks. It imports no other layer."""
