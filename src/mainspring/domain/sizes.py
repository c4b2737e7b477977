"""Sizes: `"512MB"`, `"1GiB"`, `"64k"`, or a number of bytes."""

from __future__ import annotations

import re
from decimal import Decimal

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown

_STEPS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d{1,19}(?:\.\d{1,9})?)\s*([kmgt]?)(i?)b?\Z", re.ASCII | re.IGNORECASE)
_HINT = 'write "512MB", "1GiB" or a number of bytes'


def parse_size(value: str | int, field: str, *, least: int = 1, most: int = 2**60, hint: str = _HINT) -> int:
    """Read a size and return bytes. 1MB is 10**6 and 1MiB is 2**20. Raises InvalidInput that names `field`."""
    if isinstance(value, str):
        match = _SIZE.match(value.strip())
        if match is None or (match[3] and not match[2]):
            raise InvalidInput(f"{shown(value)} is not a size", code="invalid_size", field=field, hint=hint)
        size = int(Decimal(match[1]) * (1024 if match[3] else 1000) ** _STEPS[match[2].lower()])
    else:
        size = value
    if isinstance(value, bool) or not least <= size <= most:
        raise InvalidInput(
            f"{shown(value)} is out of range",
            code="invalid_size",
            field=field,
            expected=f"at least {format_size(least)}, at most {format_size(most)}",
            hint=hint,
        )
    return size


def format_size(size: int) -> str:
    """The shortest form of a size that `parse_size` can read: 512MB, 1GiB, 1234."""
    for step, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "k")):
        for base, suffix in ((1024, "iB"), (1000, "B")):
            if size and size % base**step == 0:
                return f"{size // base**step}{letter}{suffix}"
    return str(size)
