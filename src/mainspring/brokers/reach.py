"""Which addresses a process may call. The process builds it."""

from __future__ import annotations

from typing import Protocol


class AllowedAddresses(Protocol):
    async def addresses(self, scheme: str, host: str, port: int, /) -> list[str]:
        """The addresses of a host, each of which may be called; a connection has to use one of them. Raises
        MainspringError or OSError."""
