"""What handles and groups of methods need of a client: it sends calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Protocol, TypeVar

from mainspring.sdk.client.core import Call, PageT

T = TypeVar("T")


class Sender(Protocol):
    """A client that blocks. `Client` is one."""

    def send(self, call: Call[T], *, patience: float | None = None, persist: bool = False) -> T:
        """Send the call and return the decoded answer."""

    def pages(self, call: Call[PageT]) -> Iterator[PageT]:
        """Send the call for the first page, and then for all others."""


class AsyncSender(Protocol):
    """A client that is awaited. `AsyncClient` is one."""

    async def send(self, call: Call[T], *, patience: float | None = None, persist: bool = False) -> T:
        """Send the call and return the decoded answer."""

    def pages(self, call: Call[PageT]) -> AsyncIterator[PageT]:
        """Send the call for the first page, and then for all others."""
