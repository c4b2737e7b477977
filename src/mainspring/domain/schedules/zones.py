"""Time zones by name."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown

_LONGEST_COMPARED = 100
_ABBREVIATION = re.compile(r"[A-Z]{1,4}T\Z")  # CEST, PST; those that are zones, such as GMT, are not looked up here


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    # Two names are not the time of a place: "localtime" is the setting of this machine, "Factory" means "not set".
    return frozenset(available_timezones()) - {"localtime", "Factory"}


def _meant(name: str) -> str:
    """The zone that is spelt alike, or whose city was given."""
    if _ABBREVIATION.match(name):
        return 'name a place, such as "Europe/Berlin": an abbreviation does not say when clocks change'
    folded = {known.lower(): known for known in sorted(_zone_names())}
    cities = {known.rpartition("/")[2].lower(): known for known in sorted(_zone_names(), reverse=True)}
    word = name[:_LONGEST_COMPARED].lower().replace(" ", "_")
    for known in (folded, cities):
        near = word if word in known else next(iter(get_close_matches(word, known, n=1, cutoff=0.8)), None)
        if near is not None:
            return f"did you mean {known[near]!r}?"
    return 'such as "Europe/Berlin" or "UTC"'


def check_timezone(name: str, field: str) -> str:
    if name not in _zone_names():
        hint = _meant(name)
        raise InvalidInput(
            f"{shown(name)} is not a known time zone",
            code="unknown_timezone",
            field=field,
            expected="the name of an IANA time zone",
            hint=hint,
        )
    return name
