"""Schedules from their stored texts, ready to be evaluated."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.domain.schedules.schedule import Schedule
from mainspring.kernel.time_slices import TimeSlices
from mainspring.store.jobs import schedule_from_text


async def schedules_of(texts: Iterable[str]) -> dict[str, Schedule]:
    """The schedules by their texts."""
    found: dict[str, Schedule] = {}
    slices = TimeSlices()
    for text in texts:
        if text not in found:
            found[text] = schedule_from_text(text)
        if slices.over:
            await slices.pause()
    return found
