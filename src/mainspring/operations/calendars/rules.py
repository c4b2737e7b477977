"""The rules of calendars for those who evaluate schedules: loaded by digest, or the current ones by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from mainspring.domain.errors import Conflict, InvalidBatch, InvalidInput
from mainspring.domain.intake.calendar_names import leaves_no_fire, unknown_calendar
from mainspring.domain.job import JobDefinition
from mainspring.domain.schedules.calendar_days import learn_holidays_of
from mainspring.domain.schedules.calendar_rules import are_known, know_rules, rules_of
from mainspring.domain.schedules.fires import next_fire
from mainspring.domain.schedules.schedule import Schedule, for_job
from mainspring.kernel.clock import SYSTEM_CLOCK, DatabaseClock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.time_slices import TimeSlices
from mainspring.store import calendars
from mainspring.store.calendars import CalendarRow
from mainspring.store.pool import Connection, Store

_ANY_ID = "-"  # whether a schedule has a fire does not depend on the id of its job
_MOST_ERRORS = 100


async def load_rules(connection: Connection, tenant: TenantId, schedules: Iterable[Schedule]) -> None:
    """Load the rules of these schedules, unless they are known. Schedules without a calendar cost nothing."""
    missing = {
        one.calendar_rules for one in schedules if one.calendar_rules is not None and not are_known(one.calendar_rules)
    }
    if missing:
        for text in await calendars.rules(connection, tenant, missing):
            await _know(text)


async def with_current_rules(
    connection: Connection, tenant: TenantId, definition: JobDefinition, now: datetime
) -> JobDefinition:
    """The definition with the current rules of its calendar, which stay the current ones until the transaction ends.
    Raises InvalidInput if there is no such calendar, or if it leaves no fire."""
    name = definition.schedule.calendar
    if name is None:
        return definition
    row = (await calendars.share(connection, tenant, [name])).get(name)
    if row is None:
        raise unknown_calendar(name, await calendars.names(connection, tenant))
    await _know(row.rules_text)
    return _resolved(definition, row, tenant, now, set())


class CalendarBook:
    """The current rules for jobs that are submitted."""

    def __init__(self, store: Store, clock: DatabaseClock) -> None:
        self._store = store
        self._clock = clock

    async def resolved(
        self, tenant: TenantId, definitions: Sequence[JobDefinition], *, single: bool
    ) -> Sequence[JobDefinition]:
        """The definitions with the current rules of their calendars. Raises InvalidInput or InvalidBatch."""
        names = {item.schedule.calendar for item in definitions if item.schedule.calendar is not None}
        if not names:
            return definitions
        async with self._store.reads.acquire() as connection:
            rows = {row.name: row for name in sorted(names) if (row := await calendars.get(connection, tenant, name))}
            known = await calendars.names(connection, tenant) if len(rows) < len(names) else []
        for row in rows.values():
            await _know(row.rules_text)
        found: list[JobDefinition] = []
        errors: list[tuple[int, InvalidInput]] = []
        now, slices = self._clock.now(), TimeSlices()
        firing: set[Schedule] = set()
        for index, item in enumerate(definitions):
            name = item.schedule.calendar
            try:
                if name is not None and name not in rows:
                    raise unknown_calendar(name, known)
                found.append(item if name is None else _resolved(item, rows[name], tenant, now, firing))
            except InvalidInput as error:
                if single:
                    raise
                errors.append((index, error))
                if len(errors) >= _MOST_ERRORS:
                    break
            if slices.over:
                await slices.pause()
        if errors:
            problems = [error.as_field_problem(index) for index, error in errors]
            raise InvalidBatch(problems, more=len(errors) >= _MOST_ERRORS)
        return found


async def hold_rules(connection: Connection, tenant: TenantId, definitions: Iterable[JobDefinition]) -> None:
    """Keep the calendars of these jobs as they are until the transaction ends. Raises Conflict if one has changed since
    the jobs got its rules: their next fires would not be worked out anew."""
    wanted = {
        (item.schedule.calendar, item.schedule.calendar_version)
        for item in definitions
        if item.schedule.calendar is not None
    }
    if not wanted:
        return
    rows = await calendars.share(connection, tenant, [name for name, _ in wanted])
    for name, version in wanted:
        if name not in rows or rows[name].rules_version != version:
            raise Conflict(
                f"the calendar {name!r} changed meanwhile", code="changed_meanwhile", field="schedule.calendar",
                hint="try again",
            )  # fmt: skip


def _resolved(
    definition: JobDefinition, row: CalendarRow, tenant: TenantId, now: datetime, firing: set[Schedule]
) -> JobDefinition:
    """`firing`: schedules that have a fire. Those of a batch are often equal."""
    schedule = msgspec.structs.replace(
        definition.schedule, calendar_version=row.rules_version, calendar_rules=row.digest
    )
    if schedule not in firing:
        if next_fire(for_job(schedule, tenant, definition.job_id or _ANY_ID, now), now) is None:
            raise leaves_no_fire(row.name)
        firing.add(schedule)
    return msgspec.structs.replace(definition, schedule=schedule)


async def _know(text: str) -> None:
    """Holidays are worked out in a thread, all that a search for a fire may need: the first time takes a second."""
    rules = rules_of(know_rules(text))
    if rules.holidays:
        await asyncio.to_thread(learn_holidays_of, rules, SYSTEM_CLOCK.wall())
