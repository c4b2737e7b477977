"""Reads bodies and parameters of calls, and splits results into pages, for the local server of a box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from mainspring.domain.intake.decoding_errors import in_words
from mainspring.domain.intake.request import parse_time
from mainspring.sdk.client.core import Call

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
Route = Callable[[str, Call[Any]], Any]
PAGE = 50


def read_body(call: Call[Any], shape: type[S]) -> S:
    try:
        return msgspec.json.decode(call.body or b"{}", type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise in_words(error, shape) from None


def wanted_tag(call: Call[Any]) -> str | None:
    """The tag that the call names, for `check_tag`."""
    return dict(call.headers).get("If-Match", "").strip('"') or None


def wanted_version(call: Call[Any]) -> int | None:
    tag = wanted_tag(call)
    return None if tag is None else int(tag)


def read_page(items: Sequence[T], call: Call[Any]) -> tuple[list[T], str | None]:
    """The requested page, and the cursor of the next one."""
    asked = dict(call.params)
    begin, size = int(asked.get("cursor", 0)), int(asked.get("limit", PAGE))
    end = begin + size
    return list(items[begin:end]), str(end) if end < len(items) else None


def matches(call: Call[Any], **values: str | None) -> bool:
    """Whether these values match the filters of the call."""
    asked = dict(call.params)
    return all(name not in asked or asked[name] == value for name, value in values.items())


def within(call: Call[Any], name: str, moment: datetime | None) -> bool:
    """Whether a time matches the filters `<name>_after` and `<name>_before` of the call."""
    asked = dict(call.params)
    after, before = (asked.get(f"{name}_{side}") for side in ("after", "before"))
    if after is None and before is None:
        return True
    return (
        moment is not None
        and (after is None or moment >= parse_time(after, f"{name}_after"))
        and (before is None or moment < parse_time(before, f"{name}_before"))
    )
