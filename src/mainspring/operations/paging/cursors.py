"""Cursors of keyset pages: the end of the last page, as an opaque text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.ids import parse_uuid


def encode_cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def encode_place(place: tuple[datetime, str] | UUID) -> str:
    """The cursor of a list of jobs: it ends with a job, or with the run of a one-time job."""
    return encode_cursor(str(place) if isinstance(place, UUID) else f"{place[0].isoformat()} {place[1]}")


def run_cursor(cursor: str | None) -> UUID | None:
    """The run before which the next page begins. None for the first page."""
    if cursor is None:
        return None
    run_id = parse_uuid(decode_cursor(cursor))
    if run_id is None:
        raise bad_cursor()
    return run_id


def job_cursor(cursor: str | None) -> tuple[datetime, str] | UUID | None:
    """What the next page follows: (created_at, job_id) of a job, or the run of a one-time job that has fired. None for
    the first page."""
    if cursor is None:
        return None
    decoded = decode_cursor(cursor)
    if (run_id := parse_uuid(decoded)) is not None:
        return run_id
    text, _, job_id = decoded.partition(" ")
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise bad_cursor() from None
    if "\x00" in job_id:
        raise bad_cursor()
    return moment, job_id


def missed_cursor(cursor: str | None) -> int | None:
    """The number before which the next page of missed fires begins. None for the first page."""
    if cursor is None:
        return None
    text = decode_cursor(cursor)
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_cursor()
    return int(text)


def name_cursor(cursor: str | None) -> str | None:
    """The name that the next page follows. None for the first page."""
    name = None if cursor is None else decode_cursor(cursor)
    if name is not None and "\x00" in name:
        raise bad_cursor()
    return name


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def cursor_after_names(rows: Sequence[_Named], limit: int) -> str | None:
    """The cursor of the next page, after a page of `limit` rows. `rows` has one more if there is a next page."""
    return encode_cursor(rows[limit - 1].name) if len(rows) > limit else None


def decode_cursor(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise bad_cursor() from None


def bad_cursor() -> InvalidInput:
    return InvalidInput("the cursor is not valid", field="cursor", hint="take it from `next` or the Link header")
