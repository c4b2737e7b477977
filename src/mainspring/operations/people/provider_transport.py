"""What a sign-in at a provider needs of the network. The role `server` brings an implementation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class ProviderAnswer(msgspec.Struct, frozen=True):
    status: int
    body: bytes


class NotReached(Exception):
    """There was no complete answer. The message says why; there is no secret in it."""


class ProviderTransport(Protocol):
    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, allow: str | None
    ) -> ProviderAnswer:
        """Call a provider. Redirects are not followed. `allow`: addresses that are not public and may be called.
        Raises NotReached."""

    def close(self) -> None: ...
