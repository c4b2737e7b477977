"""The hypothesis profile of the domain tests: no deadlines, and a blob that reproduces a failure."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "domain", deadline=None, print_blob=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("domain")
