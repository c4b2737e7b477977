"""Schedules from their stored texts, ready to be evaluated."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.domain.schedules.schedule import Schedule
from mainspring.kernel.ids import TenantId
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.calendars.rules import load_rules
from mainspring.store.jobs import schedule_from_text
from mainspring.store.pool import Connection


async def schedules_of(connection: Connection, tenant: TenantId, texts: Iterable[str]) -> dict[str, Schedule]:
    """The schedules of a tenant by their texts. The rules of their calendars are loaded."""
    found: dict[str, Schedule] = {}
    slices = TimeSlices()
    for text in texts:
        if text not in found:
            found[text] = schedule_from_text(text)
        if slices.over:
            await slices.pause()
    await load_rules(connection, tenant, found.values())
    return found
