"""Chooses between several servers of one database: which one to use, and which one next. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b


def split_addresses(text: str) -> tuple[str, ...]:
    """The addresses in `http://a:8700,http://b:8700`, without duplicates and without trailing slashes."""
    pieces = (piece.strip().rstrip("/") for piece in text.split(","))
    return tuple(dict.fromkeys(piece for piece in pieces if piece))


def in_preferred_order(addresses: Iterable[str], name: str) -> tuple[str, ...]:
    """The addresses in the order of preference of the client `name` (rendezvous hashing). Over many clients, each
    address is the first choice equally often. If one server fails, its clients spread over the others, and all other
    clients stay."""

    def rank(address: str) -> bytes:
        return blake2b(f"{name}\n{address}".encode("utf-8", "replace"), digest_size=8).digest()

    return tuple(sorted(addresses, key=rank))


class ServerRotation:
    """Uses one address until it fails, then the next one. The first address follows the last.

    Threads can share a rotation. If two threads fail at the same address, it moves on only once.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)
        self._failed: frozenset[str] = frozenset()
        self.current = self._addresses[0]

    @property
    def untried(self) -> bool:
        """Whether the current address has not failed since the last answer. It can be tried without a delay."""
        return self.current not in self._failed

    @property
    def better(self) -> tuple[str, ...]:
        """The addresses that are preferred to the current one."""
        return self._addresses[: self._addresses.index(self.current)]

    def go_to(self, address: str) -> bool:
        """Switch to this address if it is preferred to the current one."""
        if address not in self.better:
            return False
        self.current = address
        return True

    def answered(self) -> None:
        if self._failed:
            self._failed = frozenset()

    def failed(self, address: str) -> bool:
        """Record that the address did not answer or reported a failure. True if the rotation moved on."""
        self._failed |= {address}
        if address != self.current or len(self._addresses) == 1:
            return False
        place = self._addresses.index(address)
        self.current = self._addresses[(place + 1) % len(self._addresses)]
        return True
