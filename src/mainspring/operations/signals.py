"""Signals: hints that something changed. Listeners in this process are called at once, other processes get a NOTIFY.

A signal may be lost. A poll backs up each kind, so the change is noticed at most a second later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from uuid import UUID

import asyncpg
import msgspec

from mainspring.kernel.ids import TenantId, uuid7
from mainspring.kernel.logs import get_logger
from mainspring.store.pool import Store, connect
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest

log = get_logger("signals")

CHANNEL = "mainspring"
LIVE_CHANNEL = "mainspring_live"  # of event streams; older servers do not know its messages
_BATCH_DELAY = 0.005  # seconds during which signals are collected into one NOTIFY
_RETRY_MARGIN = 0.002  # seconds after a backoff, so that the run is ready by the database's clock too
_MAX_NAMES = 100  # per message: the payload of NOTIFY is limited to 8,000 bytes


class FlowNews(msgspec.Struct, frozen=True):
    """What workflow runs have to do: joins with marks, joins of members that have counted some, mapped steps that are
    ready, workflow runs of which something may be left to cancel, and those that run again."""

    folds: Collection[int] = ()
    maps: Collection[int] = ()
    fanouts: Collection[UUID] = ()
    stopped: Collection[UUID] = ()
    rerun: Collection[UUID] = ()


class Signals:
    """Sends and receives signals.

    ready    lanes got runs, and how many
    due      jobs will fire soon
    stop     a worker has runs to stop, or has to drain
    tokens   a tenant's tokens were revoked
    freed    gates were given back, and how often
    gates    the settings of a gate have changed
    knock    somebody may be admitted in lines of limits; in this process only
    look     runs wait for other jobs, and it must be found out for what; in this process only
    fill     runs of backfills have ended, or a backfill may continue; in this process only
    flow     what workflow runs have to do; in this process only
    exchanged  a worker has reported, or was given runs; in this process only
    live     what servers with event streams tell each other; on a channel of its own, not batched here
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._origin = str(uuid7())
        self._ready_listeners: list[Callable[[Mapping[int, int]], None]] = []
        self._due_listeners: list[Callable[[], None]] = []
        self._stop_listeners: list[Callable[[UUID], None]] = []
        self._token_listeners: list[Callable[[TenantId], None]] = []
        self._freed_listeners: list[Callable[[Mapping[int, int]], None]] = []
        self._gates_listeners: list[Callable[[], None]] = []
        self._knock_listeners: list[Callable[[Collection[frozenset[int]]], None]] = []
        self._fill_listeners: list[Callable[[Collection[UUID]], None]] = []
        self._flow_listeners: list[Callable[[FlowNews], None]] = []
        self._look_listeners: list[Callable[[], None]] = []
        self._exchanged_listeners: list[Callable[[TenantId, ExchangeRequest, ExchangeReply | None], None]] = []
        self._live_listeners: list[Callable[[str, str], None]] = []
        self._ready: dict[int, int] = {}
        self._freed: dict[int, int] = {}
        self._gates = False
        self._due = False
        self._stop: set[UUID] = set()
        self._tokens: set[TenantId] = set()
        self._pending = asyncio.Event()

    def on_ready(self, listener: Callable[[Mapping[int, int]], None]) -> None:
        self._ready_listeners.append(listener)

    def on_due(self, listener: Callable[[], None]) -> None:
        self._due_listeners.append(listener)

    def on_stop(self, listener: Callable[[UUID], None]) -> None:
        self._stop_listeners.append(listener)

    def on_tokens_changed(self, listener: Callable[[TenantId], None]) -> None:
        self._token_listeners.append(listener)

    def on_gates_freed(self, listener: Callable[[Mapping[int, int]], None]) -> None:
        self._freed_listeners.append(listener)

    def on_gates_changed(self, listener: Callable[[], None]) -> None:
        self._gates_listeners.append(listener)

    def on_knock(self, listener: Callable[[Collection[frozenset[int]]], None]) -> None:
        self._knock_listeners.append(listener)

    def on_fill(self, listener: Callable[[Collection[UUID]], None]) -> None:
        self._fill_listeners.append(listener)

    def on_flow(self, listener: Callable[[FlowNews], None]) -> None:
        self._flow_listeners.append(listener)

    def flow(self, news: FlowNews) -> None:
        for listener in self._flow_listeners:
            listener(news)

    def on_look(self, listener: Callable[[], None]) -> None:
        self._look_listeners.append(listener)

    def look(self) -> None:
        for listener in self._look_listeners:
            listener()

    def on_exchanged(self, listener: Callable[[TenantId, ExchangeRequest, ExchangeReply | None], None]) -> None:
        self._exchanged_listeners.append(listener)

    def exchanged(self, tenant: TenantId, request: ExchangeRequest, reply: ExchangeReply | None) -> None:
        """After the commit. Without a reply: what has started, and progress."""
        for listener in self._exchanged_listeners:
            listener(tenant, request, reply)

    def on_live(self, listener: Callable[[str, str], None]) -> None:
        self._live_listeners.append(listener)

    async def send_live(self, kind: str, names: str) -> None:
        """Tell the other servers. The listeners here are not called."""
        await self._store.reads.execute("select pg_notify($1, $2)", LIVE_CHANNEL, f"{self._origin} {kind} {names}")

    def fill(self, ended: Collection[UUID] = ()) -> None:
        """These runs of backfills have ended. Without runs: some backfill may continue."""
        for listener in self._fill_listeners:
            listener(ended)

    def knock(self, lines: Collection[frozenset[int]]) -> None:
        """Runs may be admitted in these lines, those of a set together. An empty set: where a backoff is over."""
        if lines:
            for listener in self._knock_listeners:
                listener(lines)

    def knock_later(self, delay: float) -> None:
        """Signal `knock` when a run that backs off stands in its line again."""
        asyncio.get_running_loop().call_later(delay + _RETRY_MARGIN, self.knock, [frozenset[int]()])

    def ready(self, created: Mapping[int, int]) -> None:
        if not created:
            return
        for listener in self._ready_listeners:
            listener(created)
        for lane, count in created.items():
            self._ready[lane] = self._ready.get(lane, 0) + count
        self._pending.set()

    def ready_later(self, lane_id: int, delay: float) -> None:
        """Signal `ready` when a run that backs off can be claimed again."""
        asyncio.get_running_loop().call_later(delay + _RETRY_MARGIN, self.ready, {lane_id: 1})

    def due(self) -> None:
        for listener in self._due_listeners:
            listener()
        self._due = True
        self._pending.set()

    def stop(self, worker_id: UUID) -> None:
        for listener in self._stop_listeners:
            listener(worker_id)
        self._stop.add(worker_id)
        self._pending.set()

    def tokens_changed(self, tenant: TenantId) -> None:
        for listener in self._token_listeners:
            listener(tenant)
        self._tokens.add(tenant)
        self._pending.set()

    def gates_freed(self, freed: Mapping[int, int]) -> None:
        if not freed:
            return
        for listener in self._freed_listeners:
            listener(freed)
        for gate_id, count in freed.items():
            self._freed[gate_id] = self._freed.get(gate_id, 0) + count
        self._pending.set()

    def gates_changed(self) -> None:
        for listener in self._gates_listeners:
            listener()
        self._gates = True
        self._pending.set()

    async def send_forever(self) -> None:
        """Notify the other processes, outside writing transactions: the commit of a NOTIFY takes a global lock."""
        while True:
            await self._pending.wait()
            await asyncio.sleep(_BATCH_DELAY)
            self._pending.clear()
            for message in self._take_messages():
                await self._store.reads.execute("select pg_notify($1, $2)", CHANNEL, f"{self._origin} {message}")

    async def listen_forever(self) -> None:
        """Receive the signals of other processes. Raises when the connection is lost, and the caller repeats it.
        Without a session nothing can be received: only the polls notice what happens elsewhere."""
        if not self._store.database.direct.has_sessions:
            log.info("no direct URL: changes of other processes are polled for")
            await asyncio.get_running_loop().create_future()
        connection = await connect(self._store.database.direct, application="listener")
        self._store.connections.add(connection)  # it never sends, so it would not notice that it is dead
        lost = asyncio.get_running_loop().create_future()

        def on_termination(_connection: asyncpg.Connection) -> None:
            if not lost.done():
                lost.set_exception(ConnectionError("the LISTEN connection was lost"))

        connection.add_termination_listener(on_termination)
        try:
            await connection.add_listener(CHANNEL, self._on_notify)
            await connection.add_listener(LIVE_CHANNEL, self._on_live)
            await lost
        finally:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await connection.close(timeout=1)

    def _take_messages(self) -> list[str]:
        """Return the collected signals as messages, and start a new collection."""
        messages = []
        for kind, counts in (("ready", self._ready), ("freed", self._freed)):
            pairs = list(counts.items())  # all of them: many lanes of one tenant must not displace others
            for first in range(0, len(pairs), _MAX_NAMES):
                part = pairs[first : first + _MAX_NAMES]
                messages.append(f"{kind} " + ",".join(f"{number}:{count}" for number, count in part))
            counts.clear()
        if self._gates:
            messages.append("gates -")
            self._gates = False
        if self._due:
            messages.append("due -")
            self._due = False
        if self._stop:
            messages.append("stop " + ",".join(str(worker) for worker in list(self._stop)[:_MAX_NAMES]))
            self._stop.clear()
        if self._tokens:
            messages += [f"tokens {tenant}" for tenant in self._tokens]
            self._tokens.clear()
        return messages

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        origin, kind, names = str(payload).split(" ", 2)
        if origin == self._origin:
            return
        match kind:
            case "ready":
                created = _counts(names)
                for on_ready in self._ready_listeners:
                    on_ready(created)
            case "freed":
                freed = _counts(names)
                for on_freed in self._freed_listeners:
                    on_freed(freed)
            case "gates":
                for on_changed in self._gates_listeners:
                    on_changed()
            case "due":
                for on_due in self._due_listeners:
                    on_due()
            case "stop":
                for name in names.split(","):
                    for on_stop in self._stop_listeners:
                        on_stop(UUID(name))
            case "tokens":
                for on_tokens_changed in self._token_listeners:
                    on_tokens_changed(TenantId(int(names)))
            case _:
                log.warning("unknown signal", kind=kind)

    def _on_live(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        origin, kind, names = str(payload).split(" ", 2)
        if origin != self._origin:
            for listener in self._live_listeners:
                listener(kind, names)


def _counts(names: str) -> dict[int, int]:
    return {int(number): int(count) for number, count in (item.split(":") for item in names.split(","))}
