"""The addresses of providers of OpenID Connect that a server may call."""

from __future__ import annotations

from mainspring.kinds.http.address_guard import AddressGuard


def provider_guard(allow: str | None) -> AddressGuard:
    """Raises InvalidInput that names the bad entry."""
    return AddressGuard.from_text(allow, option="allow", process="server")
