"""Streams: the browsers that are connected here, and the events that each of them has yet to receive.

A stream has a fixed number of topics and keeps at most one event for each, so a slow reader needs no more memory than a
quick one. Twice a second the changes of the lists and the states of single objects are published to the streams that
watch them. An object that no stream watches is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mainspring.domain.errors import Unavailable
from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.operations.access.caller import Caller
from mainspring.operations.live.change_publisher import ChangePublisher
from mainspring.operations.live.connection_quota import ConnectionQuota
from mainspring.operations.live.object_poller import Key, ObjectPoller, Seen
from mainspring.operations.live.topics import WORKERS, Topic
from mainspring.operations.signals import Signals
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store
from mainspring.wire.live import Change

MOST_STREAMS = 500  # of a server
MOST_OF_CALLER = 16  # of a session, or of a token
SIGNED_OUT, SERVER_STOPS, FULL = "signed_out", "server_stops", "full"


class OpenStream:
    """One connection. `news` is set when there is something to send, or when the caller must be checked again."""

    def __init__(self, caller: Caller, topics: Sequence[Topic]) -> None:
        self.tenant = caller.tenant
        self.keys = [(caller.tenant, topic) for topic in topics]
        self.news = asyncio.Event()
        self.closed = False
        self.full = False  # another tenant needs the connection
        self._pending: dict[str, Change] = {}

    def leave(self) -> None:
        self.closed = self.full = True
        self.news.set()

    def publish(self, change: Change) -> None:
        """Keep a change until it is sent. The counts of a list are added up; of a single object the last state is
        kept."""
        before = self._pending.get(change.topic)
        if before is not None and change.changes:
            change = Change(change.topic, changes=before.changes + change.changes)
        self._pending[change.topic] = change
        self.news.set()

    def take(self) -> list[Change]:
        """Return the changes to send, and forget them."""
        taken, self._pending = self._pending, {}
        return list(taken.values())


class Streams:
    name = "streams"
    interval = 0.5
    beat = 5.0  # seconds; a stream says at least so often that it lives

    def __init__(self, store: Store, signals: Signals, lanes: LaneRegistry, clock: Clock) -> None:
        self.changes = ChangePublisher(store, signals, lanes, clock, lambda: bool(self._open))
        self.closed = False
        self.quota = ConnectionQuota("streams", MOST_STREAMS, MOST_OF_CALLER)
        self._poller = ObjectPoller(store, clock)
        self._open: set[OpenStream] = set()
        self._watched: dict[Key, set[OpenStream]] = {}
        self._known: dict[Key, Seen] = {}
        self._origin = str(uuid7())[-6:]
        self._number = 0
        signals.tokens.subscribe(self._check_again)

    def __len__(self) -> int:
        return len(self._open)

    def check_room(self, caller: Caller) -> None:
        """Raise unless this caller may open one more stream here."""
        if self.closed:
            raise Unavailable("the server stops", hint="connect again")
        self.quota.check(caller)

    @contextmanager
    def stream(self, caller: Caller, topics: Sequence[Topic]) -> Iterator[OpenStream]:
        """A stream for as long as it is used. Raises as `check_room` does, because several callers may have passed the
        check together."""
        self.check_room(caller)
        stream = OpenStream(caller, topics)
        with self.quota.hold(caller, stream.leave), self._opened(stream):
            yield stream

    @contextmanager
    def _opened(self, stream: OpenStream) -> Iterator[None]:
        self._open.add(stream)
        for key in stream.keys:
            self._watched.setdefault(key, set()).add(stream)
            if key in self._known and key[1].kind != WORKERS:
                stream.publish(self._known[key][1])
        metrics.streams.set(len(self._open))
        try:
            yield
        finally:
            self._open.discard(stream)
            for key in stream.keys:
                self._forget(key, stream)
            metrics.streams.set(len(self._open))

    def _forget(self, key: Key, stream: OpenStream) -> None:
        streams = self._watched[key]
        streams.discard(stream)
        if not streams:
            del self._watched[key]
            self._known.pop(key, None)

    def next_id(self) -> str:
        """The id of the next event. The ids of a server rise."""
        self._number += 1
        return f"{self._origin}:{self._number}"

    async def run_once(self) -> int:
        """Publish what has changed to the streams. Return how many streams there are."""
        for (tenant, name), count in (await self.changes.take()).items():
            self._publish((tenant, Topic(name)), Change(name, changes=count))
        if self._watched:
            for key, seen in (await self._poller.poll(list(self._watched))).items():
                self._compare(key, seen)
        return len(self._open)

    def _compare(self, key: Key, seen: Seen | None) -> None:
        before = self._known.get(key)
        if seen is None:
            if before is not None:
                del self._known[key]
                self._publish(key, Change(key[1].name))
        elif key in self._watched and (before is None or before[0] != seen[0]):
            self._known[key] = seen
            if before is not None or key[1].kind != WORKERS:  # the first poll of a list is no change
                self._publish(key, seen[1])

    def _publish(self, key: Key, change: Change) -> None:
        for stream in self._watched.get(key, ()):
            stream.publish(change)

    def _check_again(self, tenant: TenantId) -> None:
        """A token or session of this tenant has ended: each stream of the tenant checks its own."""
        for stream in self._open:
            if stream.tenant == tenant:
                stream.news.set()

    def close(self) -> None:
        """The server stops: every stream ends, and can continue at another server."""
        self.closed = True
        self._poller.close()
        for stream in self._open:
            stream.closed = True
            stream.news.set()
