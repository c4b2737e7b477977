"""What a connector needs of a broker: to open a stream or queue, to read messages, and to say which ones are stored.

The consumers of the brokers raise any error when the broker is away or refuses something. The connector then closes
them, waits, and opens them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

import msgspec

from mainspring.brokers.connect_settings import SourceSettings
from mainspring.domain.errors import MainspringError

OPEN_SECONDS = 10.0
ANSWER_SECONDS = 10.0


class BrokerMessage(msgspec.Struct, frozen=True):
    """A message of a broker. id: under which the broker may deliver it again; None: it has none. offset: its place in
    the partition, where the broker has offsets. receipt: what the consumer needs to settle it."""

    value: bytes
    id: str | None = None
    key: str | None = None
    headers: dict[str, str] = {}
    topic: str = ""
    partition: str = ""
    offset: int | None = None
    receipt: Any = None


class Consumer(Protocol):
    async def open(self) -> None:
        """Connect, and begin to consume."""

    async def read(self, most: int, wait: float) -> list[BrokerMessage]:
        """Up to so many messages. None if there are none within `wait` seconds."""

    async def settle(self, messages: Sequence[BrokerMessage]) -> list[str]:
        """The messages are stored. Returns the ids that the broker will not deliver again."""

    async def lag(self) -> dict[str, int]:
        """How many messages wait, by partition; nothing if the broker does not say."""

    async def close(self) -> None:
        """Disconnect. Raises nothing."""


@runtime_checkable
class OffsetConsumer(Consumer, Protocol):
    """A consumer of a broker with offsets: the server stores them, and says where to begin."""

    def unplaced(self) -> list[str]:
        """Partitions that are assigned to this consumer, and are not read before `place` was called."""

    async def place(self, partition: str, offset: int | None) -> int | None:
        """Read the partition behind this offset; None: from where the settings say. Returns the offset before the first
        message that is read. None if the partition is no longer assigned."""


# The module that the extra of a broker brings.
_LIBRARIES = {"kafka": "aiokafka", "nats": "nats", "rabbitmq": "aio_pika", "redis": "redis"}


def consumer_of(settings: SourceSettings, connector: str) -> Consumer:
    """The consumer of a source. Raises MainspringError if its extra is not installed."""
    require_library(settings.kind)
    module = import_module(f"mainspring.brokers.{settings.kind}.consumer")
    make: Callable[[SourceSettings, str], Consumer] = module.make
    return make(settings, connector)


def require_library(kind: str) -> None:
    library = _LIBRARIES[kind]
    if find_spec(library) is None:
        raise MainspringError(
            f"a source of {kind} needs the extra {kind}: {library} is not installed", code="extra_missing",
            hint=f"pip install 'mainspring[{kind}]'",
        )  # fmt: skip
