"""Sinks: create, change, pause, delete, read and test."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec

from mainspring.domain.errors import InvalidInput, Unavailable
from mainspring.domain.notify.channel_kinds import check_name
from mainspring.domain.sinks.cloud_events import NotTaken, Producer, cloud_event
from mainspring.domain.sinks.requests import MOST_SINKS, check_sink, divided, no_sink, place_of, read_filter
from mainspring.domain.tags import changed_meanwhile, check_named_version
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.ids import uuid7
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.cursors import cursor_after_names, name_cursor
from mainspring.operations.sinks.producers import Producers
from mainspring.operations.sinks.views import decode_labels, decode_settings, sink_view
from mainspring.store import sinks, tenants
from mainspring.store.pool import Connection, Store
from mainspring.store.sinks import SinkContent, SinkRow
from mainspring.wire.sinks import TESTED, SinkList, SinkRequest, SinkTested, SinkView

log = get_logger("sinks")

_encode = msgspec.json.Encoder(order="deterministic").encode
_TRIES, _PAUSE = 5, 0.3


class SinkAdmin:
    def __init__(self, store: Store, clock: Clock, database_clock: DatabaseClock, producers: Producers) -> None:
        self._store = store
        self._clock = clock
        self._database_clock = database_clock
        self._producers = producers

    async def sinks(self, caller: Caller, cursor: str | None, limit: int) -> SinkList:
        """The sinks of the tenant, by name."""
        after = name_cursor(cursor)
        async with self._store.read() as connection:
            rows = await sinks.page(connection, caller.tenant, after, limit + 1)
            progress = await sinks.progress(connection, [row.sink_id for row in rows])
        following = cursor_after_names(rows, limit)
        return SinkList([sink_view(row, progress[row.sink_id]) for row in rows[:limit]], following)

    async def all_sinks(self, caller: Caller) -> list[SinkView]:
        """For metrics: a tenant has few."""
        return (await self.sinks(caller, None, MOST_SINKS)).sinks

    async def sink(self, caller: Caller, name: str) -> SinkView:
        async with self._store.read() as connection:
            row = await sinks.get(connection, caller.tenant, name)
            if row is None:
                raise no_sink(name)
            progress = await sinks.progress(connection, [row.sink_id])
        return sink_view(row, progress[row.sink_id])

    async def put(self, caller: Caller, name: str, request: SinkRequest, if_version: int | None) -> bool:
        """Create or change a sink. Returns whether it was created. The first one creates the triggers, for which no
        transaction may hold the tables of jobs and runs at that moment: it waits for a short time, several times."""
        check_name(name, "sink")
        if request.kind in ("kafka", "nats", "rabbitmq", "redis", "webhook"):
            self._producers.check(request.kind, {"url": request.url})
        for left in reversed(range(_TRIES)):
            try:
                async with self._store.change() as connection:
                    return await _put(connection, caller, name, request, if_version)
            except asyncpg.LockNotAvailableError:
                if left:
                    await asyncio.sleep(_PAUSE)
        raise Unavailable(
            "a transaction has held the tables of jobs and runs for seconds, so changes cannot be watched yet",
            code="tables_held", hint="try again; pg_stat_activity shows transactions that stay open",
        )  # fmt: skip

    async def pause(self, caller: Caller, name: str, *, paused: bool) -> SinkView:
        """What changes meanwhile waits, and is sent when the sink is resumed."""
        async with self._store.change() as connection:
            row = await self._locked(connection, caller, name)
            if row.paused != paused:
                if not await sinks.pause(connection, row, caller.name, paused=paused):
                    raise changed_meanwhile(f"the sink {name!r}")
                await record(connection, caller, "sink", name, {"paused": row.paused}, {"paused": paused})
        return await self.sink(caller, name)

    async def delete(self, caller: Caller, name: str, if_version: int | None) -> SinkView:
        """Delete a sink. What it has not sent yet is not sent."""
        async with self._store.change() as connection:
            row = await self._locked(connection, caller, name)
            check_named_version("sink", name, row, if_version)
            progress = await sinks.progress(connection, [row.sink_id])
            if not await sinks.delete(connection, row):
                raise changed_meanwhile(f"the sink {name!r}")
            await record(connection, caller, "sink", name, _audited(row), None)
        log.info("sink deleted", tenant=caller.tenant, sink=name, by=caller.name)
        return sink_view(row, progress[row.sink_id])

    async def test(self, caller: Caller, name: str) -> SinkTested:
        """Send a test event now, once, and say what became of it. Other changes of the sink go on."""
        async with self._store.read() as connection:
            row = await sinks.get(connection, caller.tenant, name)
            if row is None:
                raise no_sink(name)
            secrets = await sinks.secrets(connection, row.sink_id)
            tenant = await tenants.get(connection, caller.tenant)
        event_id = f"test-{uuid7()}"
        data = _encode({"sink": name, "by": caller.name})
        event = cloud_event(
            0, self._database_clock.now(), TESTED, tenant.name if tenant else "", name, name, data, test=event_id
        )
        began, error = self._clock.monotonic(), None
        producer: Producer | None = None
        try:
            producer = await self._producers.open(row.kind, decode_settings(row.settings_text), secrets)
            await producer.send([event])
        except NotTaken as failure:
            error = str(failure)
        finally:
            if producer is not None:
                await producer.close()
        return SinkTested(name, event_id, error is None, round(self._clock.monotonic() - began, 3), error)

    async def _locked(self, connection: Connection, caller: Caller, name: str) -> SinkRow:
        row = await sinks.lock(connection, caller.tenant, name)
        if row is None:
            raise no_sink(name)
        return row


async def _put(connection: Connection, caller: Caller, name: str, request: SinkRequest, if_version: int | None) -> bool:
    row = await sinks.lock(connection, caller.tenant, name)
    check_named_version("sink", name, row, if_version)
    settings, given = divided(request)
    known: dict[str, str] = {}
    # A secret must not be sent to another place than the one it was given for.
    if row is not None and place_of(row.kind, decode_settings(row.settings_text)) == place_of(request.kind, settings):
        known = await sinks.secrets(connection, row.sink_id)
    check_sink(request, frozenset(known))
    wanted, secrets = read_filter(request), {**known, **given}
    labels = _encode(wanted.labels).decode() if wanted.labels else None
    content = SinkContent(
        request.kind, _encode(settings).decode(), wanted.changes, wanted.queue, wanted.task, wanted.job, labels,
        wanted.keep_seconds, wanted.keep_bytes,
    )  # fmt: skip
    sealed, changed_secrets = _encode(secrets).decode(), secrets != known
    if row is None:
        if await sinks.count(connection, caller.tenant) >= MOST_SINKS:
            raise InvalidInput(f"the tenant has {MOST_SINKS} sinks already", field="name", hint="delete one first")
        done = await sinks.insert(connection, caller.tenant, name, content, sealed, caller.name) is not None
    elif _content(row) == content and not changed_secrets:
        return False
    else:
        done = await sinks.change(connection, row, content, sealed, caller.name)
    if not done:
        raise changed_meanwhile(f"the sink {name!r}")
    after = await sinks.get(connection, caller.tenant, name)
    assert after is not None
    was = None if row is None else _audited(row)
    await record(connection, caller, "sink", name, was, {**_audited(after), "secrets_changed": changed_secrets})
    log.info("sink changed", tenant=caller.tenant, sink=name, kind=request.kind, by=caller.name)
    return row is None


def _content(row: SinkRow) -> SinkContent:
    labels = None if row.labels_text is None else _encode(decode_labels(row.labels_text)).decode()
    settings = _encode(decode_settings(row.settings_text)).decode()
    return SinkContent(
        row.kind, settings, row.changes, row.queue, row.task, row.job_id, labels, row.keep_seconds, row.keep_bytes
    )


def _audited(row: SinkRow) -> dict[str, Any]:
    """A sink as its entries show it: of its secrets the names."""
    return {
        "kind": row.kind, "settings": decode_settings(row.settings_text), "on": row.changes, "queue": row.queue,
        "task": row.task, "job": row.job_id, "keep_s": row.keep_seconds, "keep_bytes": row.keep_bytes,
        "secrets": row.secret_names, "secrets_changed": False,
    }  # fmt: skip
