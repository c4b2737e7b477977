"""Fires due jobs: shard leases, the timing wheel, the due-scan and the fire."""
