"""Output of attempts on its way from a worker to the store."""

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
    """fenced: refused, the run has changed hands; the worker drops what it has of them."""

    stored: int = 0
    fenced: list[UUID] = []
