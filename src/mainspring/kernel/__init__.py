"""The lowest layer: clocks, ids, settings, logging and background loops. It imports no other layer."""
