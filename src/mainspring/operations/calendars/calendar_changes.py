"""Changes of calendars: create, change, delete."""

from __future__ import annotations

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.domain.intake.calendar import read_calendar
from mainspring.domain.intake.calendar_names import check_calendar_name, no_calendar
from mainspring.domain.schedules.calendar_rules import digest_of, rules_to_text
from mainspring.domain.tags import changed_meanwhile, check_named_version
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.views import calendar_view
from mainspring.operations.computations import Computations
from mainspring.store import calendars
from mainspring.store.calendars import CalendarRow
from mainspring.store.pool import Connection, Store
from mainspring.wire.calendars import CalendarRequest, CalendarView

log = get_logger("calendars")

MOST_CALENDARS = 10_000
_SHOWN_USERS = 10


class CalendarChanger:
    def __init__(self, store: Store, clock: DatabaseClock, computations: Computations) -> None:
        self._store = store
        self._clock = clock
        self._computations = computations

    async def put(self, caller: Caller, name: str, request: CalendarRequest, if_version: int | None) -> bool:
        """Create or change a calendar. Returns whether it was created. The same rules again change nothing."""
        rules = await self.read(caller, name, request)
        async with self._store.change() as connection:
            return await put_calendar(connection, caller, name, rules, if_version)

    async def read(self, caller: Caller, name: str, request: CalendarRequest) -> CalendarRequest:
        """The rules of a request. The caller holds no lock: it takes a while. Raises InvalidInput."""
        check_calendar_name(name)
        return await self._computations.run(caller.tenant, read_calendar, request, self._clock.now())

    async def delete(self, caller: Caller, name: str, if_version: int | None) -> CalendarView:
        """Delete a calendar that no job uses. Returns it as it was."""
        check_calendar_name(name)
        async with self._store.change() as connection:
            row = await delete_calendar(connection, caller, name, if_version)
        return calendar_view(row)


async def put_calendar(
    connection: Connection, caller: Caller, name: str, rules: CalendarRequest, if_version: int | None = None
) -> bool:
    """Create or change a calendar in the caller's transaction. Returns whether it was created."""
    text, tenant = rules_to_text(rules), caller.tenant
    digest = digest_of(text)
    row = await calendars.lock(connection, tenant, name)
    check_named_version("calendar", name, row, if_version)
    if row is not None and (digest, rules.description) == (row.digest, row.description):
        return False
    if row is None:
        if await calendars.count(connection, tenant) >= MOST_CALENDARS:
            raise InvalidInput(
                f"the tenant has {MOST_CALENDARS} calendars already", field="name", hint="delete one first"
            )
        done = await calendars.insert(connection, tenant, name, digest, text, rules.description, caller.name)
    else:
        done = await calendars.change(connection, row, digest, text, rules.description, caller.name)
    if not done:
        raise changed_meanwhile(f"the calendar {name!r}")
    after = {"rules": msgspec.json.decode(text), "description": rules.description}
    await record(connection, caller, "calendar", name, None if row is None else _audited(row), after)
    log.info("calendar changed", tenant=tenant, calendar=name, by=caller.name, created=row is None)
    return row is None


async def delete_calendar(
    connection: Connection, caller: Caller, name: str, if_version: int | None = None
) -> CalendarRow:
    """Delete a calendar that no job uses, in the caller's transaction. Returns it as it was."""
    tenant = caller.tenant
    row = await calendars.lock(connection, tenant, name)
    if row is None:
        raise no_calendar(name)
    check_named_version("calendar", name, row, if_version)
    use = await calendars.use(connection, row)
    if use.jobs:
        users = await calendars.users(connection, tenant, name, _SHOWN_USERS)
        more = f" and {use.jobs - len(users):,} more" if use.jobs > len(users) else ""
        count = "1 job uses" if use.jobs == 1 else f"{use.jobs:,} jobs use"
        raise Conflict(
            f"{count} the calendar {name!r}: {', '.join(users)}{more}", code="calendar_in_use", field="name",
            hint="give these jobs another calendar or none, or cancel them",
        )  # fmt: skip
    if not await calendars.delete(connection, row):
        raise changed_meanwhile(f"the calendar {name!r}")
    await record(connection, caller, "calendar", name, _audited(row), None)
    log.info("calendar deleted", tenant=tenant, calendar=name, by=caller.name)
    return row


def _audited(row: CalendarRow) -> dict[str, object]:
    return {"rules": msgspec.json.decode(row.rules_text), "description": row.description}
