"""JSON in a form that does not depend on spacing and the order of keys, so that it can be compared."""

from __future__ import annotations

from contextlib import suppress

import msgspec


def canonical_json(text: bytes) -> bytes:
    # A number that is out of range (1e999) cannot be decoded. Such a text is compared as it is.
    with suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
    return text


def same_json(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or canonical_json(one.encode()) == canonical_json(other.encode())
