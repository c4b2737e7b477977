"""What sends events over the network. The server builds it (roles/sink_producers.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mainspring.domain.sinks.cloud_events import NotTaken, Producer


class Producers(Protocol):
    def check(self, kind: str, settings: Mapping[str, Any], /) -> None:
        """Raises MainspringError unless this server can send there: an address, and a library that is installed."""

    async def open(self, kind: str, settings: Mapping[str, Any], secrets: Mapping[str, str], /) -> Producer:
        """Raises NotTaken."""


class NoProducers:
    """For parts of the product that send nothing."""

    def check(self, _kind: str, _settings: Mapping[str, Any], /) -> None: ...

    async def open(self, _kind: str, _settings: Mapping[str, Any], _secrets: Mapping[str, str], /) -> Producer:
        raise NotTaken("this process sends no changes")
