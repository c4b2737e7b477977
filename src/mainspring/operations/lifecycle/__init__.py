"""How runs are completed and change hands: report, cancel, expire, rescue, skip, discard."""
