"""The addresses that channels may call."""

from __future__ import annotations

from mainspring.kinds.http.address_guard import AddressGuard

_OPTION = "--notify-allow"


def notify_guard(allowed: str | None) -> AddressGuard:
    """Raises InvalidInput that names the bad entry."""
    return AddressGuard.from_text(allowed, option=_OPTION, process="server")
