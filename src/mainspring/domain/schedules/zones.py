"""Time zones by name."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    # Two names are not the time of a place: "localtime" is the setting of this machine, "Factory" means "not set".
    return frozenset(available_timezones()) - {"localtime", "Factory"}


def check_timezone(name: str, field: str) -> str:
    if name not in _zone_names():
        folded = {known.lower(): known for known in _zone_names()}
        hint = (
            f"did you mean {folded[name.lower()]!r}?" if name.lower() in folded else 'such as "Europe/Berlin" or "UTC"'
        )
        raise InvalidInput(
            f"{shown(name)} is not a known time zone",
            code="unknown_timezone",
            field=field,
            expected="the name of an IANA time zone",
            hint=hint,
        )
    return name
