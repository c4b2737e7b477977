"""Take messages of a source: their events and jobs, and where the source is, in one transaction.

A connector may be killed between any two of its steps, and two of them may read the same. What was taken is known by
the offset of the partition, which must be the one that the connector has seen, or else by the ids of the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput, MainspringError, QuotaExceeded, Unavailable
from mainspring.domain.texts import check_line, check_prose, read_word, shown
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.operations.limits.quota_guard import QuotaGuard
from mainspring.operations.signals import Signals
from mainspring.operations.sources.readings import MessageReader, Readings, dead
from mainspring.operations.submit.submitter import Submitter
from mainspring.store import events, sources
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.pool import Connection, Store
from mainspring.store.sources import Move
from mainspring.wire.sources import BROKERS, MOST_DEAD, DeadReport, SourceMessage, SourceTake, SourceTaken

log = get_logger("sources")

MOST_SOURCES = 10_000  # of a tenant, with their partitions
_TRIES = 5


class SourceMoved(Conflict):
    """Another connector has taken messages of this partition, so that another offset is stored."""

    code = "source_moved"


class _TakenMeanwhile(Exception):
    """Another connector has taken some of the messages."""


class SourceTaker:
    def __init__(self, store: Store, signals: Signals, quotas: QuotaGuard, submitter: Submitter) -> None:
        self._store = store
        self._signals = signals
        self._quotas = quotas
        self._submitter = submitter
        self._reader = MessageReader(submitter, quotas)

    async def take(self, caller: Caller, name: str, request: SourceTake) -> SourceTaken:
        """Raises SourceMoved if another offset is stored. A message that cannot become an event or a job is kept as a
        dead one. If several cannot be stored together, they are stored in parts."""
        check_source_name(name)
        _check(request)
        return await self._take(caller, name, request)

    async def _take(self, caller: Caller, name: str, request: SourceTake) -> SourceTaken:
        try:
            return await self._store_some(caller, name, request)
        except (Unavailable, SourceMoved):
            raise
        except MainspringError as error:
            messages = request.messages
            if not messages or (isinstance(error, QuotaExceeded) and error.field == "stored_jobs"):
                raise  # the connector waits until there is room
            if len(messages) == 1:
                if messages[0].dead is not None:
                    raise
                buried = msgspec.structs.replace(messages[0], event=msgspec.Raw(), job=msgspec.Raw())
                buried.dead = _report(messages[0], error)
                return await self._store_some(caller, name, msgspec.structs.replace(request, messages=[buried]))
        half = len(messages) // 2
        first = await self._take(caller, name, msgspec.structs.replace(request, messages=messages[:half]))
        rest = msgspec.structs.replace(request, messages=messages[half:], settled=[])
        if request.messages[0].offset is not None:
            rest.after = first.offset
        second = await self._take(caller, name, rest)
        return SourceTaken(
            first.taken + second.taken, first.repeated + second.repeated, first.dead + second.dead, second.offset
        )

    async def _store_some(self, caller: Caller, name: str, request: SourceTake) -> SourceTaken:
        for _ in range(_TRIES):
            try:
                return await despite_deadlocks(partial(self._store_once, caller, name, request))
            except _TakenMeanwhile:
                continue
        raise Unavailable(f"another connector takes the messages of {name!r}", hint="try again")

    async def _store_once(self, caller: Caller, name: str, request: SourceTake) -> SourceTaken:
        new = await self._new(caller, name, request)
        found = await self._reader.read(caller, new)
        if found.events:
            await self._quotas.admit_request(caller, len(found.events))
        done = SourceTaken(len(new) - len(found.dead), len(request.messages) - len(new), len(found.dead))
        ids = list(dict.fromkeys(message.id for message in new if message.id is not None))
        store = partial(self._record, caller=caller, name=name, request=request, ids=ids, found=found, done=done)
        if found.jobs:
            await self._submitter.submit_with(caller, found.jobs, store)
        else:
            async with self._store.change() as connection:
                await store(connection)
        if found.events:
            self._signals.emitted.publish()
        if found.dead:
            log.warning(
                "messages could not be used", tenant=caller.tenant, source=name, messages=len(found.dead),
                first=found.dead[0].reason,
            )  # fmt: skip
        return done

    async def _new(self, caller: Caller, name: str, request: SourceTake) -> Sequence[SourceMessage]:
        """The messages that were not taken before."""
        ids = [message.id for message in request.messages if message.id is not None]
        async with self._store.hot.acquire() as connection:
            stored = await sources.offset(connection, caller.tenant, name, request.partition)
            if _moves(request) and stored != request.after:
                raise _moved(name, request, stored)
            known = await sources.known(connection, caller.tenant, name, ids) if ids else set()
        new: list[SourceMessage] = []
        for message in request.messages:
            if message.id is None or message.id not in known:
                new.append(message)
            if message.id is not None:
                known.add(message.id)  # twice in one request is once
        return new

    async def _record(
        self,
        connection: Connection,
        *,
        caller: Caller,
        name: str,
        request: SourceTake,
        ids: Sequence[str],
        found: Readings,
        done: SourceTaken,
    ) -> None:
        tenant, part = caller.tenant, request.partition
        exists, stored = await sources.lock(connection, tenant, name, part)
        if not exists:
            if await sources.count(connection, tenant) >= MOST_SOURCES:
                raise InvalidInput(
                    f"the tenant has {MOST_SOURCES} sources and partitions already", field="name",
                    hint="see GET /v1/sources, and delete those that nobody reads",
                )  # fmt: skip
            await sources.add(connection, tenant, name, part, request.kind)
            exists, stored = await sources.lock(connection, tenant, name, part)
        if _moves(request) and stored != request.after:
            raise _moved(name, request, stored)
        if ids and await sources.take(connection, tenant, name, ids) != len(ids):
            raise _TakenMeanwhile
        if request.settled:
            await sources.settle(connection, tenant, name, request.settled)
        if found.events:
            await events.insert(connection, tenant, found.events, caller.created_by)
        if found.dead:
            await sources.insert_dead(connection, tenant, name, part, found.dead, MOST_DEAD)
        done.offset = _new_offset(request, stored)
        move = Move(
            request.kind, request.connector, stored, done.offset, done.taken, done.repeated, done.dead, request.lag,
            request.problem,
        )  # fmt: skip
        if not await sources.move(connection, tenant, name, part, move):
            raise _moved(name, request, stored)


def check_source_name(name: str) -> None:
    check_line(name, "name")
    if not 0 < len(name) <= 100 or name != name.strip() or name in (".", "..") or "/" in name or ":" in name:
        raise InvalidInput(
            f"{shown(name)} cannot be the name of a source", field="name",
            expected="at most 100 characters, without / and :",
        )  # fmt: skip


def _check(request: SourceTake) -> None:
    read_word(request.kind, "kind", BROKERS)
    check_line(request.connector, "connector")
    check_line(request.partition, "partition")
    if request.problem is not None:
        check_prose(request.problem, "problem")
    for index, text in enumerate(request.settled):
        check_line(text, f"settled[{index}]")
    last = request.after
    with_offsets = _moves(request)
    for index, message in enumerate(request.messages):
        where = f"messages[{index}]"
        if bool(message.event) + bool(message.job) + (message.dead is not None) != 1:
            raise InvalidInput("a message is one of event, job and dead", field=where)
        if message.id is not None:
            check_line(message.id, f"{where}.id")
        if (message.offset is not None) != (with_offsets and request.offset is None):
            raise InvalidInput(
                "either all messages have an offset or none, and then the request has none", field=f"{where}.offset"
            )
        if message.offset is not None:
            if last is not None and message.offset <= last:
                raise InvalidInput(
                    "the offsets do not rise", field=f"{where}.offset", expected=f"more than {last}"
                )  # fmt: skip
            last = message.offset


def _moves(request: SourceTake) -> bool:
    return request.offset is not None or any(message.offset is not None for message in request.messages)


def _new_offset(request: SourceTake, stored: int | None) -> int | None:
    if request.messages and request.messages[-1].offset is not None:
        return request.messages[-1].offset
    return stored if request.offset is None else request.offset


def _moved(name: str, request: SourceTake, stored: int | None) -> SourceMoved:
    where = f"{name!r} {request.partition}".rstrip()
    return SourceMoved(
        f"the offset of {where} is {stored}, not {request.after}: another connector takes its messages",
        field="after", hint="continue from the stored offset; a request without messages answers with it",
    )  # fmt: skip


def _report(message: SourceMessage, error: MainspringError) -> DeadReport:
    buried = dead(message, str(error))
    return DeadReport(buried.reason or "it cannot be stored", buried.value)
