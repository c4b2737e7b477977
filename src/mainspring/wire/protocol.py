"""The protocol version of the exchange. It decides which fields a worker may send to a server of another version.

A server refuses a field that it does not know, because a field that is dropped silently is a lost outcome or a broken
limit. A worker ignores what it does not know in an answer. So every answer carries the server's protocol number, and a
worker sends a field that was added after 0.2.0 only to a server whose number is high enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)

BASE_PROTOCOL = 1  # of 0.2.0, and of a reply without a number

# Fields that were added to ExchangeRequest and its structs after 0.2.0, with the number of their protocol. A release
# that adds fields takes the next number. Each field must be optional for the server.
NEWER_FIELDS: dict[tuple[str, str], int] = {
    ("WorkerHello", "lease"): 2,
    ("ExchangeRequest", "started"): 2,
    ("Outcome", "unstarted"): 2,
    ("WorkerHello", "protocol"): 2,
    ("WorkerHello", "secret"): 2,
    ("Outcome", "snooze"): 3,
    ("Outcome", "usage"): 4,
    ("Progress", "usage"): 4,
    ("Usage", "cpu_s"): 4,
    ("Usage", "rss_peak"): 4,
    ("Usage", "rss"): 4,
    ("Usage", "samples"): 4,
    ("Outcome", "callback"): 6,
}
# The header with which a worker proves each request. Older servers ignore it.
SECRET_HEADER = "Mainspring-Worker-Secret"
WORKER_HEADER = "Mainspring-Worker"  # the worker that a death notice is about
LONGEST_SECRET = 100

# How the idempotency keys begin that the SDK generates. A worker of 0.2.0 creates its schedules at each start and takes
# a refusal as the sign that they exist. So a request with such a key begins no new generation of a cancelled job.
GENERATED_KEY = "client-"
GENERATED_KEY_OF_0_2_0 = "sdk-"

TELLS_STARTS = 2  # a worker of this protocol tells which runs have started
TAKES_USAGE = 4  # a server of this protocol takes what processes use while they run
TAKES_SECRETS = 5  # a worker of this protocol hides the secrets of its runs; others do not get any


class WireProtocol:
    """`newer` maps (struct, field) to the number of the protocol that brought the field. `least`: of what has none."""

    def __init__(self, newer: Mapping[tuple[str, str], int], least: int = BASE_PROTOCOL) -> None:
        self.number = max([least, *newer.values()])
        self._newer = newer

    def fit(self, message: S, announced: int) -> S:
        """A copy of the message without the fields that a server of protocol `announced` does not know. Returns the
        message itself if it has none of them."""
        if announced >= self.number:
            return message
        changes: dict[str, Any] = {}
        for field in msgspec.structs.fields(message):
            value = getattr(message, field.name)
            if self._newer.get((type(message).__name__, field.name), BASE_PROTOCOL) > announced:
                fitting = _default(field)
            else:
                fitting = self._fit_value(value, announced)
            if fitting is not value:
                changes[field.name] = fitting
        return msgspec.structs.replace(message, **changes) if changes else message

    def _fit_value(self, value: Any, announced: int) -> Any:
        if isinstance(value, msgspec.Struct):
            return self.fit(value, announced)
        if isinstance(value, list) and any(isinstance(item, msgspec.Struct) for item in value):
            return [self._fit_value(item, announced) for item in value]
        return value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """The default of the field, which is left out when the message is encoded."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


PROTOCOL = WireProtocol(NEWER_FIELDS, TAKES_SECRETS)
