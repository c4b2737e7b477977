"""Identifiers. UUIDv7 keeps new rows at the right edge of every index on them."""

from __future__ import annotations

import os
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import NewType
from uuid import UUID

# The only id with a type of its own: a tenant is a number among other numbers, and it decides who sees what.
TenantId = NewType("TenantId", int)

DEFAULT_TENANT = TenantId(1)  # of the instance administrators: only its admins make tenants and shared worker tokens
EVERY_TENANT = TenantId(0)  # of a worker token that belongs to no tenant, and of its workers: they take runs of all

_VERSION_AND_VARIANT = (0x7 << 76) | (0x2 << 62)
_RANDOM_MASK = (1 << 62) - 1
_FAR_AHEAD = 1000 << 12  # a second: more than batches borrow
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RUNNING = [f"{number:03x}" for number in range(4096)]
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}  # its first two bits are fixed
_last = 0
_turn = threading.Lock()
_UUID_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE)


def uuid7() -> UUID:
    return uuid7_batch(1)[0]


def uuid7_batch(count: int) -> list[UUID]:
    """`count` UUIDv7 that rise in order, and above all that this process has made: 48 bits of milliseconds, 12 of a
    running number, 62 random."""
    first = _numbers(count)
    entropy = os.urandom(8 * count)
    ids = []
    for index in range(count):
        number = first + index
        head = ((number >> 12) << 80) | ((number & 0xFFF) << 64)
        tail = int.from_bytes(entropy[index * 8 : index * 8 + 8], "big") & _RANDOM_MASK
        ids.append(UUID(int=head | _VERSION_AND_VARIANT | tail))
    return ids


def uuid7_texts(count: int) -> list[str]:
    """As `uuid7_batch`, but as text, which the hot path needs: 0.7 µs each instead of 2.5, and no UUID objects to
    spell."""
    first = _numbers(count)
    digits = os.urandom(8 * count).hex()
    texts: list[str] = []
    while len(texts) < count:
        begin = len(texts)
        milliseconds, number = divmod(first + begin, 4096)  # a number that is used up borrows from the next millisecond
        stamp = f"{milliseconds:012x}"
        head = f"{stamp[:8]}-{stamp[8:]}-7"
        end = min(count, begin + 4096 - number)
        texts += [
            f"{head}{running}-{_VARIANT[digits[at]]}{digits[at + 1 : at + 4]}-{digits[at + 4 : at + 16]}"
            for running, at in zip(
                _RUNNING[number : number + end - begin], range(16 * begin, 16 * end, 16), strict=True
            )
        ]
    return texts


def _numbers(count: int) -> int:
    """The first of `count` numbers, milliseconds and running number in one, that this process has not used: two runs of
    one millisecond are listed in the order in which they were made. A clock that was set back is followed."""
    global _last
    now = (time.time_ns() // 1_000_000) << 12
    with _turn:
        first = _last + 1 if now <= _last < now + _FAR_AHEAD else now
        _last = first + max(count, 1) - 1
    return first


def parse_uuid(text: str) -> UUID | None:
    """The UUID that `text` spells in the usual form, or None."""
    return UUID(text) if _UUID_FORM.match(text) else None


def is_uuid7(text: str) -> bool:
    """Whether `text` spells an id as we generate them. It takes a tenth of the time of parse_uuid."""
    return _UUID_FORM.match(text) is not None and text[14] == "7" and text[19] in "89abAB"


def uuid7_time(some_id: UUID) -> datetime:
    """The time in a UUIDv7, in milliseconds."""
    return _EPOCH + timedelta(milliseconds=some_id.int >> 80)


def first_uuid7(moment: datetime) -> UUID:
    """No id with the time `moment` or later is smaller, and no earlier one is greater."""
    milliseconds = -((_EPOCH - moment) // timedelta(milliseconds=1))
    return UUID(int=min(max(milliseconds, 0), (1 << 48) - 1) << 80)
