"""Schedules from their stored texts, ready to be evaluated."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.domain.schedules.schedule import Schedule
from mainspring.kernel.ids import TenantId
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.calendars.rules import load_rules
from mainspring.store.pool import Connection
from mainspring.store.shown_definitions import schedule_to_show


async def schedules_of(connection: Connection, tenant: TenantId, texts: Iterable[str]) -> dict[str, Schedule]:
    """The schedules of a tenant by their texts; MANUAL for one that cannot be read, because it does not fire. The rules
    of their calendars are loaded."""
    found: dict[str, Schedule] = {}
    slices = TimeSlices()
    for text in texts:
        if text not in found:
            found[text] = schedule_to_show(text)[0]
        if slices.over:
            await slices.pause()
    await load_rules(connection, tenant, found.values())
    return found
