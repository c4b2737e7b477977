"""How often a token and an address may call a server, as the operator says."""

from __future__ import annotations

import os

from mainspring.api.request_rates import RequestRates
from mainspring.domain.rates import Rate, parse_rate
from mainspring.kernel.clock import Clock

_PER_TOKEN, _PER_ADDRESS = "MAINSPRING_REQUESTS_PER_TOKEN", "MAINSPRING_REQUESTS_PER_ADDRESS"


def request_rates(clock: Clock) -> RequestRates | None:
    """None if there is no limit. Raises InvalidInput if a variable is not a rate."""
    per_token, per_address = _rate(_PER_TOKEN), _rate(_PER_ADDRESS)
    return None if per_token is None and per_address is None else RequestRates(clock, per_token, per_address)


def _rate(variable: str) -> Rate | None:
    text = os.environ.get(variable, "").strip()
    return parse_rate(text, variable) if text else None
