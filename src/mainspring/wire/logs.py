"""Messages about the output of attempts: from a worker to the log store, and to clients that follow a log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from mainspring.wire.states import RunStateWord

MISSING_WORDS = "bytes of output are missing from the log store"
Stored = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # as PostgreSQL has room for


class LogChunk(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The bytes of one attempt's output from `offset` on (base64 in JSON). The worker repeats a chunk unchanged until
    it is acknowledged. A chunk that arrives twice has no further effect."""

    run_id: UUID
    fence: Stored
    attempt: Stored
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    data: bytes
    truncated: bool = False
    end: bool = False


class LogShipment(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/exchange/logs`."""

    worker_id: UUID
    chunks: list[LogChunk]


class LogReceipt(msgspec.Struct, omit_defaults=True):
    """stored: how many chunks are stored, including repeated ones. fenced: runs whose chunks are rejected because the
    fence has changed. gaps: runs whose chunks are rejected because they do not start where the log ends. The worker
    discards its output of both."""

    stored: int = 0
    fenced: list[UUID] = []
    gaps: list[UUID] = []


class LogOutput(msgspec.Struct):
    """Event `output` of a followed log. Event `truncated` has the same form; its text is the visible mark."""

    attempt: int
    text: str


class LogAttempt(msgspec.Struct):
    """Event `attempt`: the next attempt begins."""

    attempt: int


class LogEnd(msgspec.Struct):
    """Event `end`: the run, or the requested attempt, has ended. No event follows."""

    status: RunStateWord


class LogRange(msgspec.Struct):
    """Whole lines of one attempt's output. start, end: the range of its bytes. bytes: how much output there is so far.
    line: the number of the first line, from 1. It is set only if it was asked for and at most 16 MiB come before the
    line. truncated: output after the last byte was dropped. ended: the attempt prints nothing more. The last line of an
    attempt may be incomplete, and a line of more than 256 KiB comes in parts."""

    attempt: int
    start: int
    end: int
    bytes: int
    text: str
    line: int | None = None
    truncated: bool = False
    ended: bool = False


class LogMatch(msgspec.Struct):
    """A line that contains the text. start: the byte at which the line begins. at: the byte at which the text begins.
    text: the line, or the part of a long line around the match."""

    start: int
    at: int
    text: str


class LogMatches(msgspec.Struct):
    """The lines that contain the text, in order. searched_to: the byte up to which the output was searched. more: the
    next request with `start` = `searched_to` finds more or searches on. bytes: how much output there is so far. ended:
    the attempt prints nothing more. While it prints, its incomplete last line is searched again."""

    attempt: int
    matches: list[LogMatch]
    searched_to: int
    bytes: int
    more: bool = False
    ended: bool = False


class LogHit(msgspec.Struct):
    """Lines of the log of one attempt that a search of many logs has found. lines: the first ones. more: there may be
    further ones in this log. printed_at: when its output began."""

    run_id: str
    job_id: str
    name: str
    task: str
    queue: str
    status: RunStateWord
    attempt: int
    printed_at: datetime
    lines: list[LogMatch]
    more: bool = False


class LogHits(msgspec.Struct):
    """A page of a search of many logs, the newest run first. searched_to: the time of the search was over before the
    page was full; the output of runs that were created since then has been searched, and `next` continues there."""

    hits: list[LogHit]
    next: str | None = None
    searched_to: datetime | None = None
