"""Parameters and bodies that calls share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mainspring.domain.run_key import rfc3339
from mainspring.sdk.client.core import Call, encode, segment


def job_path(job_id: str, rest: str = "") -> str:
    return f"/v1/jobs/{segment(job_id)}{rest}"


def with_payload(body: dict[str, Any], payload: Mapping[str, Any] | None) -> bytes:
    return encode(body if payload is None else {**body, "payload": payload})


def verb(
    path: str, read: Any, *, body: bytes = b"{}", repeatable: bool = True, only_if: int | str | None = None
) -> Call[Any]:
    """`only_if`: the version or the tag that the object must have. With it a repeat would be refused although the first
    request succeeded."""
    return Call("POST", path, read, body=body, headers=match_header(only_if), repeatable=repeatable and only_if is None)


def match_header(only_if: int | str | None) -> tuple[tuple[str, str], ...]:
    """The header of a change to a version or a tag. None means any."""
    return () if only_if is None else (("If-Match", f'"{only_if}"'),)


def query_of(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text_of(value)) for name, value in given.items() if value is not None)


def text_of(value: Any) -> str:
    return rfc3339(value) if isinstance(value, datetime) else str(value)
