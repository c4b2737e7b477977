"""One hypothesis profile for the domain: no deadlines on a shared machine, and a blob to repeat a failure with."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "domain", deadline=None, print_blob=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("domain")
