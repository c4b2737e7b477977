"""The fires of a recurrence rule of RFC 5545, in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from mainspring.domain.schedules.bounds import Bounded
from mainspring.domain.schedules.clock_changes import offset_at
from mainspring.domain.schedules.exclusions import Excluding
from mainspring.domain.schedules.in_zone import InZone
from mainspring.domain.schedules.occurrences import Occurrences
from mainspring.domain.schedules.rrule_text import body_of, has_start
from mainspring.domain.schedules.rule import read_rule
from mainspring.domain.schedules.rule_walls import RuleWalls
from mainspring.domain.schedules.zones import zone


def rule_fires(
    text: str,
    timezone: str,
    anchor: datetime,
    *,
    started: bool,
    exdates: tuple[datetime, ...] | None,
    gap: str | None,
    fold: str | None,
) -> Occurrences:
    """`anchor`: DTSTART, or the start of the schedule (`started`), or when the job was created."""
    rule = read_rule(body_of(text))
    place = None if timezone == "UTC" else zone(timezone)
    second = int(anchor.timestamp())
    start = second + (0 if place is None else offset_at(place, second))
    walls = RuleWalls(rule, start, exact=started or has_start(text))
    fires: Occurrences = InZone(walls, place, gap or "shift", fold or "first")
    if rule.until is not None:
        fires = Bounded(fires, None, last_moment(rule.until, place))
    return Excluding(fires, exdates) if exdates else fires


def last_moment(until: str, place: ZoneInfo | None) -> datetime:
    """The last moment that UNTIL allows. A date allows all of its day. Raises ValueError."""
    if until.endswith("Z"):
        return datetime.strptime(until, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    wall = (
        datetime.strptime(until, "%Y%m%dT%H%M%S")
        if "T" in until
        else datetime.strptime(until, "%Y%m%d") + timedelta(days=1, seconds=-1)
    )
    return wall.replace(tzinfo=place or UTC, fold=1).astimezone(UTC)
