"""`H` in a cron expression: a value that is picked by a hash of the job, so that many jobs with one line spread.

H            any value of the field (of the days of a month 1 to 28, which every month has)
H(0-29)      any value of the range
H/15         every 15th value; the hash picks the first of them
H(0-29)/10   every 10th value of the range

All terms of a field take the same hash, so `H(0-29),H(30-59)` is twice an hour, 30 minutes apart.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

from mainspring.domain.schedules.cron_fields import DAY_OF_MONTH, DAY_OF_WEEK, KINDS, CronError

_TERM = re.compile(r"H(?:\(([0-9]+)-([0-9]+)\))?(?:/([0-9]+))?\Z")
_HASHED = re.compile(r"(?<![A-Za-z])H(?![A-Za-z])", re.IGNORECASE)  # not that of THU
_EXAMPLES = "H, H(0-29), H/15 or H(0-29)/10"


def has_hash(cron: str | None) -> bool:
    return cron is not None and _HASHED.search(cron) is not None


@lru_cache(maxsize=8192)
def without_hash(cron: str, seed: int) -> str:
    """The expression with values in the place of `H`. Raises CronError."""
    if not has_hash(cron):
        return cron
    fields = cron.upper().split()
    first = 6 - len(fields)  # five fields begin with the minute
    if first not in (0, 1):
        raise CronError("Wrong number of fields")
    return " ".join(
        _resolved(first + number, field, _hash(seed, first + number)) if has_hash(field) else field
        for number, field in enumerate(fields)
    )


def all_values(index: int, field: str) -> list[str]:
    """What a field with `H` can become, for any job."""
    picks = max(_size(index, term) for term in field.upper().split(",") if has_hash(term))
    return list(dict.fromkeys(_resolved(index, field.upper(), pick) for pick in range(picks)))


def hash_range(index: int) -> tuple[int, int]:
    """The values from which `H` without a range picks."""
    kind = KINDS[index]
    return kind.low, {DAY_OF_MONTH: 28, DAY_OF_WEEK: 6}.get(index, kind.high)


def _hash(seed: int, index: int) -> int:
    # Not a CRC: those of two fields would depend on each other.
    return int.from_bytes(blake2b(f"{seed}/{index}".encode(), digest_size=8).digest())


def _resolved(index: int, field: str, value: int) -> str:
    return ",".join(_picked(index, term, value) if has_hash(term) else term for term in field.split(","))


def _picked(index: int, term: str, value: int) -> str:
    low, high, step = _parts(index, term)
    if step is None:
        return str(low + value % (high - low + 1))
    return f"{low + value % min(step, high - low + 1)}-{high}/{step}"


def _size(index: int, term: str) -> int:
    low, high, step = _parts(index, term)
    return high - low + 1 if step is None else min(step, high - low + 1)


def _parts(index: int, term: str) -> tuple[int, int, int | None]:
    """The range of a term, and its step. Raises CronError."""
    kind, matched = KINDS[index], _TERM.match(term)
    low, high = hash_range(index)
    if matched is None:
        raise kind.bad(f"{term[:20]!r} uses H in a way that has no meaning; write {_EXAMPLES}")
    begin, end, step = matched.groups()
    if step is not None and int(step) == 0:
        raise kind.bad(f"{term[:20]!r} has a step of 0")
    if begin is None:
        return low, high, None if step is None else int(step)
    if int(end) < int(begin):
        raise kind.bad(f"{term[:20]!r} ends before it begins")
    if not (low <= int(begin) and int(end) <= high):
        raise kind.bad(f"{term[:20]!r} is not within {low} to {high}")
    return int(begin), int(end), None if step is None else int(step)
