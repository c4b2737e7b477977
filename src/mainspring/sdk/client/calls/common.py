"""What calls have in common: parameters and bodies."""

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


def verb(path: str, read: Any, *, repeatable: bool = True, if_version: int | None = None) -> Call[Any]:
    """With a version a repeat would be refused although the first request succeeded."""
    return Call(
        "POST", path, read, body=b"{}", headers=if_match(if_version), repeatable=repeatable and if_version is None
    )


def if_match(version: int | None) -> tuple[tuple[str, str], ...]:
    return () if version is None else (("If-Match", f'"{version}"'),)


def query_of(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text_of(value)) for name, value in given.items() if value is not None)


def text_of(value: Any) -> str:
    return rfc3339(value) if isinstance(value, datetime) else str(value)
