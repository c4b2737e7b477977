"""Changes as CloudEvents 1.0 (https://github.com/cloudevents/spec). No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import quote

import msgspec

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
DATA_TYPE = "application/json"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TYPE_PREFIX = "mainspring."
_encode = msgspec.json.Encoder().encode


class CloudEvent(msgspec.Struct, frozen=True):
    """A change of a job or a run. attributes: all of them, as text. key: what keeps its order, the job. data: JSON."""

    attributes: dict[str, str]
    key: str
    data: bytes

    @property
    def id(self) -> str:
        return self.attributes["id"]

    def structured(self) -> bytes:
        """Attributes and data as one JSON object."""
        return _encode({**self.attributes, "data": msgspec.Raw(self.data)})


def cloud_event(
    number: int, at: datetime, change: str, tenant: str, subject: str, job_id: str, data: bytes, *, test: str = ""
) -> CloudEvent:
    """number, at: of the change; the id follows from them, so a change that is sent twice has the same id, and no other
    installation has it. test: the id of an event that tells no change."""
    attributes = {
        "specversion": "1.0",
        "id": test or f"{number}-{(at - _EPOCH) // timedelta(microseconds=1)}",
        "source": f"/mainspring/{quote(tenant, safe='')}",
        "type": TYPE_PREFIX + change,
        "subject": subject,
        "time": at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": DATA_TYPE,
        "partitionkey": job_id,
        "sequence": f"{number:020d}",
    }
    return CloudEvent(attributes, job_id, data)


def batch_of(events: Sequence[CloudEvent]) -> bytes:
    return b"[" + b",".join(event.structured() for event in events) + b"]"


def windows(events: Sequence[CloudEvent], most: int) -> Iterator[Sequence[CloudEvent]]:
    """Parts of the events, in order, in each of which a key occurs once: the events of a part may be sent side by side,
    as none of them overtakes one of the same job if another fails."""
    start, keys = 0, set[str]()
    for index, event in enumerate(events):
        if event.key in keys or index - start == most:
            yield events[start:index]
            start, keys = index, set()
        keys.add(event.key)
    yield events[start:]


class NotTaken(Exception):
    """The receiver did not take an event, or no answer came. taken: how many of the events before it were taken. The
    text has no secret."""

    def __init__(self, text: str, taken: int = 0) -> None:
        super().__init__(text)
        self.taken = taken


class Producer(Protocol):
    """Sends events to one place, in order. `send` returns when the receiver has stored as many of them as it says, at
    least one, or raises NotTaken. After that the producer is closed."""

    async def send(self, events: Sequence[CloudEvent], /) -> int: ...

    async def close(self) -> None: ...
