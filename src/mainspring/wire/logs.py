"""Output of attempts: on its way from a worker to the store, and to whoever follows it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta


class LogChunk(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The bytes of one attempt's output from `offset` on (base64 in JSON). A chunk is repeated as it was until it is
    acknowledged, so one that arrives twice changes nothing."""

    run_id: UUID
    fence: int
    attempt: int
    offset: Annotated[int, Meta(ge=0)]
    data: bytes
    truncated: bool = False
    end: bool = False


class LogShipment(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/exchange/logs`."""

    worker_id: UUID
    chunks: list[LogChunk]


class LogReceipt(msgspec.Struct, omit_defaults=True):
    """stored: how many chunks are kept, now or from before. fenced: refused, the run has changed hands; gaps: refused,
    the chunks do not begin where the log ends. The worker drops what it has of both."""

    stored: int = 0
    fenced: list[UUID] = []
    gaps: list[UUID] = []


class LogOutput(msgspec.Struct):
    """Event `output` of a log that is followed; `truncated` has the same form, and its text is the visible mark."""

    attempt: int
    text: str


class LogAttempt(msgspec.Struct):
    """Event `attempt`: a further attempt begins."""

    attempt: int


class LogEnd(msgspec.Struct):
    """Event `end`: the run has ended, or the attempt that was asked for; nothing follows."""

    status: str
