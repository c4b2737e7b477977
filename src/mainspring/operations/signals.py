"""Signals: hints that something changed. Listeners in this process are called at once, other processes get a NOTIFY.

A signal may be lost. A poll backs up each kind, so the change is noticed at most a second later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Generic, ParamSpec, TypeVar
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

P = ParamSpec("P")
T = TypeVar("T")


class FlowNews(msgspec.Struct, frozen=True):
    """What workflow runs have to do: joins with marks, joins of members that have counted some ends, mapped steps that
    are ready, workflow runs that may have steps left to cancel, and those that run again."""

    marked_joins: Collection[int] = ()
    maps: Collection[int] = ()
    fanouts: Collection[UUID] = ()
    stopped: Collection[UUID] = ()
    rerun: Collection[UUID] = ()


class Signal(Generic[P]):
    """A kind of signal: a topic to which parts of this process publish and subscribe."""

    def __init__(self) -> None:
        self._listeners: list[Callable[P, None]] = []

    def subscribe(self, listener: Callable[P, None]) -> None:
        self._listeners.append(listener)

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)

    def publish_later(self, delay: float, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Publish when a run that backs off for so many seconds is ready again."""
        asyncio.get_running_loop().call_later(delay + _RETRY_MARGIN, partial(self.publish, *args, **kwargs))


class Shared(Signal[P]):
    """A signal that other processes get, too. What is published within 5 ms is sent together."""

    def __init__(self, name: str, pending: asyncio.Event) -> None:
        super().__init__()
        self.name = name
        self._pending = pending

    def take(self) -> list[str]:
        """Return what was collected, as the names of messages, and start a new collection."""
        raise NotImplementedError

    def receive(self, names: str) -> None:
        """Call the listeners for a message of another process."""
        raise NotImplementedError


class SharedHint(Shared[[]]):
    _wanted = False

    def publish(self) -> None:
        super().publish()
        self._wanted = True
        self._pending.set()

    def take(self) -> list[str]:
        wanted, self._wanted = self._wanted, False
        return ["-"] if wanted else []

    def receive(self, _: str) -> None:
        super().publish()


class SharedCounts(Shared[[Mapping[int, int]]]):
    """How many of each. Without any, nothing is published."""

    def __init__(self, name: str, pending: asyncio.Event) -> None:
        super().__init__(name, pending)
        self._counts: Counter[int] = Counter()

    def publish(self, counts: Mapping[int, int]) -> None:
        if counts:
            super().publish(counts)
            for number, count in counts.items():
                self._counts[number] += count
            self._pending.set()

    def take(self) -> list[str]:
        pairs = list(self._counts.items())  # all of them: many lanes of one tenant must not displace others
        self._counts.clear()
        parts = (pairs[first : first + _MAX_NAMES] for first in range(0, len(pairs), _MAX_NAMES))
        return [",".join(f"{number}:{count}" for number, count in part) for part in parts]

    def receive(self, names: str) -> None:
        pairs = (item.split(":") for item in names.split(","))
        super().publish({int(number): int(count) for number, count in pairs})


class SharedIds(Shared[[T]]):
    """Single ids, at most so many in a message."""

    def __init__(self, name: str, pending: asyncio.Event, parse: Callable[[str], T], most: int = _MAX_NAMES) -> None:
        super().__init__(name, pending)
        self._ids: set[T] = set()
        self._parse = parse
        self._most = most

    def publish(self, one: T) -> None:
        super().publish(one)
        self._ids.add(one)
        self._pending.set()

    def take(self) -> list[str]:
        ids, self._ids = [str(one) for one in self._ids], set()
        return [",".join(ids[first : first + self._most]) for first in range(0, len(ids), self._most)]

    def receive(self, names: str) -> None:
        for name in names.split(","):
            super().publish(self._parse(name))


def _keeper(kept: list[Callable[[], None]], signal: Signal[...]) -> Callable[..., None]:
    return lambda *args, **more: kept.append(partial(signal.publish, *args, **more))


class Signals:
    """The signals of a process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._origin = str(uuid7())
        self._pending = pending = asyncio.Event()
        self.ready = SharedCounts("ready", pending)
        """Lanes got so many runs."""
        self.gates_freed = SharedCounts("freed", pending)
        """Gates were given back so often."""
        self.gates_changed = SharedHint("gates", pending)
        """The settings of a gate have changed."""
        self.due = SharedHint("due", pending)
        """Jobs will fire soon."""
        self.stop = SharedIds[UUID]("stop", pending, UUID)
        """A worker has runs to stop, or has to drain."""
        self.emitted = Signal[[]]()
        """Applications have emitted events, or jobs that events start can go on."""
        self.event_starts = Signal[[Collection[tuple[TenantId, str]]]]()
        """Events are to start these jobs."""
        self.tokens = SharedIds[TenantId]("tokens", pending, lambda name: TenantId(int(name)), most=1)
        """A tenant's tokens were revoked."""
        self.admission = Signal[[Collection[frozenset[int]]]]()
        """Runs may be admitted in these lines, those of a set together. An empty set: where a backoff is over."""
        self.waits = Signal[[]]()
        """Runs wait for other jobs, and it must be found out for what."""
        self.backfills = Signal[[Collection[UUID]]]()
        """These runs of backfills have ended. Without runs: some backfill may continue."""
        self.flows = Signal[[FlowNews]]()
        """What workflow runs have to do."""
        self.wakes = Signal[[float]]()
        """A step waits whose time comes in so many seconds."""
        self.exchanged = Signal[[TenantId, ExchangeRequest, ExchangeReply | None]]()
        """A worker has reported, or was given runs. Without a reply: what has started, and progress."""
        self.lists_changed = Signal[[TenantId, Collection[str], int]]()
        """These lists of a tenant have changed so often, for event streams: by a bulk operation, or by an event."""
        self.live = Signal[[str, str]]()
        """What servers with event streams tell each other, on a channel of its own: kind and names."""
        shared = (self.ready, self.gates_freed, self.gates_changed, self.due, self.stop, self.tokens)
        self._shared: dict[str, Shared[...]] = {one.name: one for one in shared}

    def held(self) -> tuple[Signals, Callable[[], None]]:
        """Signals for a transaction: what is published is kept, until the function that is returned publishes it."""
        kept: list[Callable[[], None]] = []
        held = Signals(self._store)
        for name, signal in vars(held).items():
            if isinstance(signal, Signal):
                signal.subscribe(_keeper(kept, getattr(self, name)))

        def publish_all() -> None:
            for publish in kept:
                publish()

        return held, publish_all

    async def send_live(self, kind: str, names: str) -> None:
        """Tell the other servers. The listeners here are not called."""
        await self._store.reads.execute("select pg_notify($1, $2)", LIVE_CHANNEL, f"{self._origin} {kind} {names}")

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
        # Not a future with an exception, which would never be retrieved if this ends before it waits.
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            await connection.add_listener(CHANNEL, self._on_notify)
            await connection.add_listener(LIVE_CHANNEL, self._on_live)
            await lost.wait()
            raise ConnectionError("the LISTEN connection was lost")
        finally:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await connection.close(timeout=1)

    def _take_messages(self) -> list[str]:
        """Return the collected signals as messages, and start a new collection."""
        return [f"{signal.name} {names}" for signal in self._shared.values() for names in signal.take()]

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        origin, kind, names = str(payload).split(" ", 2)
        if origin == self._origin:
            return
        signal = self._shared.get(kind)
        if signal is None:
            log.warning("unknown signal", kind=kind)
        else:
            signal.receive(names)

    def _on_live(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        origin, kind, names = str(payload).split(" ", 2)
        if origin != self._origin:
            self.live.publish(kind, names)
