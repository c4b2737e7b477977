"""Cursors of keyset pages: the end of the last page, as an opaque text."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from uuid import UUID

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.ids import parse_uuid


def encode_cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def run_cursor(cursor: str | None) -> UUID | None:
    """The run before which the next page begins. None for the first page."""
    if cursor is None:
        return None
    run_id = parse_uuid(_decoded(cursor))
    if run_id is None:
        raise _bad_cursor()
    return run_id


def job_cursor(cursor: str | None) -> tuple[datetime, str] | None:
    """(created_at, job_id) before which the next page begins. None for the first page."""
    if cursor is None:
        return None
    text, _, job_id = _decoded(cursor).partition(" ")
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _bad_cursor() from None
    if "\x00" in job_id:
        raise _bad_cursor()
    return moment, job_id


def _decoded(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise _bad_cursor() from None


def _bad_cursor() -> InvalidInput:
    return InvalidInput("the cursor is not valid", field="cursor", hint="take it from `next` or the Link header")
