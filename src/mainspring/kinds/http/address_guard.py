"""Decides which addresses an http task may call: public ones, and those that the configuration of the worker allows.

The author of a job may not be trusted with the network of the worker, which often includes databases, admin pages and
the metadata service of a cloud. So the check is about addresses, never about the spelling of a URL: `http://2130706433/`,
`http://0x7f.1/` and a name that resolves to 127.0.0.1 are all checked as 127.0.0.1.

The tables follow IANA's special-purpose registries. They are written out, because the results of Python's `is_global`
depend on its patch release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown
from mainspring.kernel.logs import get_logger

log = get_logger("address_guard")

Address = IPv4Address | IPv6Address

# First match wins. Metadata: AWS and most others, Azure's wire server, Alibaba, Oracle's old one; then AWS and Google.
_SPECIAL_4 = [
    (IPv4Network(network), kind)
    for network, kind in (
        ("169.254.169.254/32", "a metadata"), ("168.63.129.16/32", "a metadata"), ("100.100.100.200/32", "a metadata"),
        ("192.0.0.192/32", "a metadata"), ("0.0.0.0/8", "an unspecified"), ("127.0.0.0/8", "a loopback"),
        ("169.254.0.0/16", "a link-local"), ("10.0.0.0/8", "a private"), ("172.16.0.0/12", "a private"),
        ("192.168.0.0/16", "a private"), ("100.64.0.0/10", "a private"), ("192.0.0.0/24", "a reserved"),
        ("192.0.2.0/24", "a reserved"), ("192.88.99.0/24", "a reserved"), ("198.18.0.0/15", "a reserved"),
        ("198.51.100.0/24", "a reserved"), ("203.0.113.0/24", "a reserved"), ("224.0.0.0/4", "a multicast"),
        ("240.0.0.0/4", "a reserved"),
    )
]  # fmt: skip
_SPECIAL_6 = [
    (IPv6Network(network), kind)
    for network, kind in (
        ("fd00:ec2::254/128", "a metadata"), ("fd20:ce::254/128", "a metadata"), ("::1/128", "a loopback"),
        ("::/128", "an unspecified"), ("fe80::/10", "a link-local"), ("fc00::/7", "a private"),
        ("fec0::/10", "a private"), ("64:ff9b:1::/48", "a private"), ("ff00::/8", "a multicast"),
        ("2001:db8::/32", "a reserved"), ("3fff::/20", "a reserved"),
    )
]  # fmt: skip
_GLOBAL_6, _IETF_6 = IPv6Network("2000::/3"), IPv6Network("2001::/23")
_TEREDO, _SIX_TO_FOUR = IPv6Network("2001::/32"), IPv6Network("2002::/16")
# IPv6 forms that end in an embedded IPv4 address: mapped, translated (SIIT), NAT64, and the old "compatible" one.
_ENDS_IN_IPV4 = [IPv6Network(prefix) for prefix in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "::/96")]
_LOW_32 = 0xFFFFFFFF

_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.(?!-)[a-z0-9_-]{1,63})*\Z", re.ASCII)
_WITH_PORT = re.compile(r"(?:\[([^\]]*)\]|([^:]*)):(\d{1,5})\Z", re.ASCII)
_EXPECTED = "addresses, networks, host names or host:port, such as 10.0.0.0/8,hooks.internal:8080; or *"


HTTP_ALLOW = "--http-allow"


class AddressRefused(Exception):
    """This worker may not call the address; a retry would not change that."""


@dataclass(frozen=True, slots=True)
class _Allowed:
    """One entry of the list: a network or a name, on one port or on all."""

    network: IPv4Network | IPv6Network | None
    name: str | None
    port: int | None

    def covers(self, host: str, port: int, address: Address) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is None:
            return self.name == host
        return any(meant in self.network for meant in (address, *_embedded(address)))


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """`check` rejects every address that is neither public nor allowed."""

    allowed: tuple[_Allowed, ...] = ()
    everything: bool = field(default=False)
    option: str = HTTP_ALLOW  # that allows an address
    process: str = "worker"  # whose log has the address

    @classmethod
    def from_text(cls, text: str | None, *, option: str = HTTP_ALLOW, process: str = "worker") -> AddressGuard:
        """Parse a list such as `10.0.0.0/8,localhost:8080`; raises InvalidInput that names the bad entry."""
        entries = [entry for entry in (piece.strip() for piece in (text or "").split(",")) if entry]
        name = option.removeprefix("--").replace("-", "_")
        allowed = tuple(_entry(entry, name) for entry in entries if entry != "*")
        return cls(allowed, everything="*" in entries, option=option, process=process)

    def check(self, scheme: str, host: str, port: int, addresses: Iterable[str]) -> None:
        """Raise AddressRefused if any address of `host` may not be called. What a name resolves to is for the log of
        the worker, not for the author of the job."""
        if self.everything:
            return
        name = host.lower().rstrip(".")
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            kind = kind_of(address)
            if kind is not None and not any(entry.covers(name, port, address) for entry in self.allowed):
                log.info("http call refused", host=host, port=port, address=str(address), kind=kind)
                where = origin_text(scheme, host, port)
                if _is_literal(name):
                    raise AddressRefused(f"{where} is {kind} address; allow it with {self.option} {address}")
                raise AddressRefused(
                    f"{where} is not a public address; allow it with {self.option} {name} or its network (the "
                    f"{self.process}'s log has the address)"
                )


@lru_cache(maxsize=1024)
def kind_of(address: Address) -> str | None:
    """The kind of an address that is not public ("a private"); None for a public one."""
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _SPECIAL_4 if address in network), None)
    for network, kind in _SPECIAL_6:
        if address in network:
            return kind
    meant = _embedded(address)
    for inner in meant:
        if (inner_kind := kind_of(inner)) is not None:
            return inner_kind
    global_unicast = address in _GLOBAL_6 and address not in _IETF_6
    return None if global_unicast or (meant and address not in _TEREDO) else "a reserved"


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def origin_text(scheme: str, host: str, port: int) -> str:
    """`https://example.com`, with the port if it is not the default of the scheme."""
    shown_host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown_host}" + ("" if port == (443 if scheme == "https" else 80) else f":{port}")


def _embedded(address: Address) -> list[IPv4Address]:
    """The IPv4 addresses that are embedded in an IPv6 address."""
    if isinstance(address, IPv4Address):
        return []
    number = int(address)
    if any(address in prefix for prefix in _ENDS_IN_IPV4):
        return [IPv4Address(number & _LOW_32)]
    if address in _SIX_TO_FOUR:
        return [IPv4Address(number >> 80 & _LOW_32)]
    if address in _TEREDO:  # the server, and the address of the client with inverted bits
        return [IPv4Address(number >> 64 & _LOW_32), IPv4Address(~number & _LOW_32)]
    return []


def _entry(text: str, field: str) -> _Allowed:
    try:
        return _Allowed(ip_network(text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text), None, None)
    except ValueError as error:
        if "/" in text:
            raise InvalidInput(f"{shown(text)} is not a network: {error}", field=field, expected=_EXPECTED) from None
    host, port = text, None
    if match := _WITH_PORT.match(text):
        host, port = match[1] or match[2], int(match[3])
        try:
            return _Allowed(ip_network(host), None, port)
        except ValueError:
            pass  # not an address, so a name
    name = host.lower().rstrip(".")
    if not _NAME.match(name) or (port is not None and not 1 <= port <= 65535):
        raise InvalidInput(f"{shown(text)} is not an address, network or host", field=field, expected=_EXPECTED)
    return _Allowed(None, name, port)
