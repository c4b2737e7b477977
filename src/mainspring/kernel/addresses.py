"""Several servers at one database: which of them to use, and which next. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b


def split_addresses(text: str) -> tuple[str, ...]:
    """The addresses of `http://a:8700,http://b:8700`, each once and without a slash at its end."""
    pieces = (piece.strip().rstrip("/") for piece in text.split(","))
    return tuple(dict.fromkeys(piece for piece in pieces if piece))


def in_preferred_order(addresses: Iterable[str], name: str) -> tuple[str, ...]:
    """The order in which whoever has this name prefers them (rendezvous hashing): of many names, each address is the
    first choice of as many; when one is away those that preferred it spread over the others, and nobody else moves."""

    def rank(address: str) -> bytes:
        return blake2b(f"{name}\n{address}".encode("utf-8", "replace"), digest_size=8).digest()

    return tuple(sorted(addresses, key=rank))


class ServerRotation:
    """One address is in use until it fails; then the next one is, and after the last the first again.

    Threads may share one: two that fail together at one address move on once.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)
        self._failed: frozenset[str] = frozenset()
        self.current = self._addresses[0]

    @property
    def untried(self) -> bool:
        """Whether the one in use has not failed since somebody last answered: there is no need to wait for it."""
        return self.current not in self._failed

    @property
    def better(self) -> tuple[str, ...]:
        """Those that come before the one in use."""
        return self._addresses[: self._addresses.index(self.current)]

    def go_to(self, address: str) -> bool:
        """Use this one from now on, if it is a better one."""
        if address not in self.better:
            return False
        self.current = address
        return True

    def answered(self) -> None:
        if self._failed:
            self._failed = frozenset()

    def failed(self, address: str) -> bool:
        """It did not answer, is late, or is in trouble; True when another one is in use from now on."""
        self._failed |= {address}
        if address != self.current or len(self._addresses) == 1:
            return False
        place = self._addresses.index(address)
        self.current = self._addresses[(place + 1) % len(self._addresses)]
        return True
