"""Declared keys of payloads: values by which runs are found. They are stored with the run, whose payload may be
dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import check_line, shown

MOST_KEYS = 8
LONGEST_PATH = 200
LONGEST_VALUE = 200  # characters; a longer value is not found
_decode = msgspec.json.Decoder().decode


def found_values(payload: str | None, paths: Sequence[str]) -> dict[str, str] | None:
    """The values at these paths. Objects, lists, null and long texts are left out. None if there is none."""
    if payload is None:
        return None
    whole = _decode(payload)
    texts = {path: value_text(_at(whole, path)) for path in paths}
    return {path: text for path, text in texts.items() if text is not None} or None


def value_text(value: Any) -> str | None:
    """How a value is written in a filter: 42, 1.5, true, or a text as it is. None: it is not found."""
    if value is None or isinstance(value, dict | list):
        return None
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST_VALUE else None


def read_search(given: Sequence[str] | None) -> list[str] | None:
    """The paths of a request. Raises InvalidInput."""
    if not given:
        return None
    if len(given) > MOST_KEYS:
        raise InvalidInput(f"search names {len(given)} keys", field="search", expected=f"at most {MOST_KEYS}")
    for place, path in enumerate(given):
        where = f"search[{place}]"
        check_line(path, where)
        if not is_path(path):
            raise InvalidInput(
                f"{shown(path)} is not the path of a value in the payload", field=where,
                expected="names with dots between them, such as account or customer.id",
                hint="leave `payload.` out" if path.startswith("payload.") else None,
            )  # fmt: skip
        if path in given[:place]:
            raise InvalidInput(f"{shown(path)} is named twice", field=where, hint="name it once")
    return list(given)


def is_path(path: str) -> bool:
    return 1 <= len(path) <= LONGEST_PATH and all(path.split(".")) and not path.startswith("payload.")


def _at(here: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(here, dict):
            return None
        here = here.get(name)
    return here
