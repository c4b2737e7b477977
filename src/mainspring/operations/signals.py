"""Hints that something changed: at once within this process, and by NOTIFY, coalesced, to the others.

Only hints: everything stays correct, at most a second later, without them (a poll backs up each one).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import UUID

import asyncpg

from mainspring.kernel.ids import TenantId, uuid7
from mainspring.kernel.logs import get_logger
from mainspring.store.pool import Store, connect

log = get_logger("signals")

CHANNEL = "mainspring"
_COALESCE = 0.005
_MAX_NAMES = 100  # NOTIFY takes at most 8,000 bytes


class Signals:
    """ready: lanes got runs. due: jobs fire soon. stop: a worker has runs to stop. tokens: a tenant's were revoked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._origin = str(uuid7())
        self._ready_listeners: list[Callable[[Mapping[int, int]], None]] = []
        self._due_listeners: list[Callable[[], None]] = []
        self._stop_listeners: list[Callable[[UUID], None]] = []
        self._token_listeners: list[Callable[[TenantId], None]] = []
        self._ready: dict[int, int] = {}
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

    def ready(self, created: Mapping[int, int]) -> None:
        if not created:
            return
        for listener in self._ready_listeners:
            listener(created)
        for lane, count in created.items():
            self._ready[lane] = self._ready.get(lane, 0) + count
        self._pending.set()

    def ready_later(self, lane_id: int, delay: float) -> None:
        """A run backs off: look at its lane when its moment comes."""
        asyncio.get_running_loop().call_later(delay + 0.002, self.ready, {lane_id: 1})

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

    async def send_forever(self) -> None:
        """Tell the other processes, outside every writing transaction."""
        while True:
            await self._pending.wait()
            await asyncio.sleep(_COALESCE)
            self._pending.clear()
            messages = self._take()
            for message in messages:
                await self._store.reads.execute("select pg_notify($1, $2)", CHANNEL, f"{self._origin} {message}")

    async def listen_forever(self) -> None:
        """Hear the other processes; a lost connection is an error for the caller's loop to repeat."""
        connection = await connect(self._store.url, application="listener")
        self._store.connections.add(connection)  # it only listens, so it would never notice that it is dead
        lost = asyncio.get_running_loop().create_future()

        def ended(_connection: asyncpg.Connection) -> None:
            if not lost.done():
                lost.set_exception(ConnectionError("the LISTEN connection was lost"))

        connection.add_termination_listener(ended)
        try:
            await connection.add_listener(CHANNEL, self._heard)
            await lost
        finally:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await connection.close(timeout=1)

    def _take(self) -> list[str]:
        messages = []
        if self._ready:
            lanes = list(self._ready.items())  # all of them: one tenant's many lanes must not crowd out another's
            for first in range(0, len(lanes), _MAX_NAMES):
                part = lanes[first : first + _MAX_NAMES]
                messages.append("ready " + ",".join(f"{lane}:{count}" for lane, count in part))
            self._ready.clear()
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

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        origin, kind, names = str(payload).split(" ", 2)
        if origin == self._origin:
            return
        match kind:
            case "ready":
                created = {int(lane): int(count) for lane, count in (item.split(":") for item in names.split(","))}
                for on_ready in self._ready_listeners:
                    on_ready(created)
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
