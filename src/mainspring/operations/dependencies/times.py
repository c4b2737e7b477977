"""When a parent fires for the nominal time of a run that waits. Its runs for that time say so themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache

from mainspring.domain.schedules.nominal_times import fire_of
from mainspring.kernel.ids import TenantId
from mainspring.operations.calendars.rules import load_rules
from mainspring.store import dependencies
from mainspring.store.dependencies import ParentNow, WaitRow
from mainspring.store.jobs import schedule_from_text
from mainspring.store.pool import Connection

_JITTER = '"jitter"'  # in the text of a schedule that has it


async def parents_at_their_times(
    connection: Connection, tenant: TenantId, waits: Sequence[WaitRow]
) -> list[tuple[ParentNow, datetime]]:
    """What is known of the parents, and when they fire for the times of the runs. Those with jitter and without a run
    for the time are read again, once it is known when they fire for it: it may be a missed fire."""
    times = [wait.for_time for wait in waits]
    parents = await dependencies.parents_now(connection, tenant, waits, times)
    await _load_calendars(connection, tenant, parents)
    fire_for = cache(_with_jitter)  # many runs wait for the same
    moved = [
        (place, fire)
        for place, now in enumerate(parents)
        if now.live_run is None
        and now.ended_run is None
        and (fire := fire_for(now.schedule_text, times[place])) is not None
        and fire != times[place]
    ]
    if moved:
        places = [place for place, _ in moved]
        fires = [fire for _, fire in moved]
        again = await dependencies.parents_now(connection, tenant, [waits[place] for place in places], fires)
        for place, fire, now in zip(places, fires, again, strict=True):
            times[place], parents[place] = fire, now
    return list(zip(parents, times, strict=True))


def _with_jitter(text: str | None, moment: datetime) -> datetime | None:
    """When a job with this schedule fires for this nominal time, if it has jitter and fires for it."""
    return None if text is None or _JITTER not in text else fire_of(schedule_from_text(text), moment)


async def _load_calendars(connection: Connection, tenant: TenantId, parents: Sequence[ParentNow]) -> None:
    texts = {text for now in parents if (text := now.schedule_text) is not None and (now.missed or _JITTER in text)}
    if texts:
        await load_rules(connection, tenant, [schedule_from_text(text) for text in texts])
