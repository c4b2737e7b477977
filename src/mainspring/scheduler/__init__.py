"""Deciding when: shard leases, the timing wheel, the due-scan and the fire."""
