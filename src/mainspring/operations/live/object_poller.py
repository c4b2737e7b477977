"""The object poller reads the state of every object that streams of this server watch, in one statement for each kind
of object.

If no object of a kind is watched, there is no statement. Objects that are slow to read are polled less often: polling
takes at most a twentieth of the time, and the longest pause is five seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from mainspring.domain.transitions import SHOWN_SCHEDULED, RunState, StoredState, shown_of_listed
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import EVERY_TENANT, TenantId, parse_uuid
from mainspring.operations.live.topics import JOB, RUN, WORKERS, WORKFLOW_RUN, Topic
from mainspring.operations.read.quota_hold import held_tenants
from mainspring.store import watched_objects
from mainspring.store.pool import Connection, Store
from mainspring.store.watched_objects import WatchedFlow, WatchedRun
from mainspring.wire.live import Change

Key = tuple[TenantId, Topic]
Seen = tuple[object, Change]  # what is compared, and what is published
_SHARE = 20
_LONGEST_PAUSE = 5.0  # seconds
_QUICK = 0.05  # a poll is quick if it takes at most so many seconds
_LONGEST_POLL = 2.0
_PATIENCE = 0.25  # seconds to wait for the polls in the background; they continue after that


class ObjectPoller:
    """The objects of several tenants are polled together as long as each tenant's poll is quick. The objects of a slow
    tenant are polled separately, in the background, so that events of the other tenants are not late. A tenant that
    watches a new object is first polled separately."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._due: dict[tuple[TenantId, str], float] = {}
        self._quick: dict[tuple[TenantId, str], set[Key]] = {}  # the objects that were polled quickly
        self._kinds: dict[str, Callable[[Connection, Collection[Key]], Awaitable[dict[Key, Seen]]]] = {
            RUN: _poll_runs,
            JOB: _poll_jobs,
            WORKFLOW_RUN: _poll_flows,
            WORKERS: _poll_workers,
        }
        self._found: dict[Key, Seen | None] = {}
        self._apart: asyncio.Task[None] | None = None

    async def poll(self, watched: Collection[Key]) -> dict[Key, Seen | None]:
        """Return the objects that were polled, and the state of each. None means that the object does not exist."""
        apart: list[tuple[TenantId, str, list[Key]]] = []
        by_tenant = _by_tenant(watched)
        for kind in self._kinds:
            together: list[TenantId] = []
            for tenant, keys in by_tenant.get(kind, {}).items():
                if self._clock.monotonic() < self._due.get((tenant, kind), 0.0):
                    continue
                if self._quick.get((tenant, kind), set()).issuperset(keys):
                    together.append(tenant)
                else:
                    apart.append((tenant, kind, keys))
            if together:
                await self._poll(kind, together, [key for tenant in together for key in by_tenant[kind][tenant]])
        if apart and self._apart is None:
            self._apart = asyncio.create_task(self._poll_apart(apart))
        if self._apart is not None:
            done, _ = await asyncio.wait([self._apart], timeout=_PATIENCE)
            if done:
                self._apart = None
                done.pop().result()
        self._forget(by_tenant)
        found, self._found = self._found, {}
        return found

    def close(self) -> None:
        if self._apart is not None:
            self._apart.cancel()

    async def _poll_apart(self, apart: Sequence[tuple[TenantId, str, list[Key]]]) -> None:
        for tenant, kind, keys in apart:
            await self._poll(kind, [tenant], keys)

    async def _poll(self, kind: str, tenants: Collection[TenantId], keys: Collection[Key]) -> None:
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(_LONGEST_POLL), self._store.hot.acquire() as connection:
                seen = await self._kinds[kind](connection, keys)
            self._found.update((key, seen.get(key)) for key in keys)
        except TimeoutError:
            pass  # the next poll may succeed
        now = self._clock.monotonic()
        for tenant in tenants:
            self._due[tenant, kind] = now + min(_LONGEST_PAUSE, _SHARE * (now - began))
            if now - began > _QUICK:
                self._quick.pop((tenant, kind), None)
            elif len(tenants) == 1:
                self._quick[tenant, kind] = set(keys)

    def _forget(self, by_tenant: Mapping[str, Mapping[TenantId, Collection[Key]]]) -> None:
        for known in (self._due, self._quick):
            for tenant, kind in [key for key in known if key[0] not in by_tenant.get(key[1], {})]:
                del known[tenant, kind]


def _by_tenant(watched: Collection[Key]) -> dict[str, dict[TenantId, list[Key]]]:
    found: dict[str, dict[TenantId, list[Key]]] = {}
    for key in watched:
        found.setdefault(key[1].kind, {}).setdefault(key[0], []).append(key)
    return found


async def _poll_runs(connection: Connection, keys: Collection[Key]) -> dict[Key, Seen]:
    runs = await _runs(connection, ((tenant, UUID(topic.id)) for tenant, topic in keys))
    return {
        key: (run, _change_of(key[1], run)) for key in keys if (run := runs.get((key[0], UUID(key[1].id)))) is not None
    }


async def _poll_jobs(connection: Connection, keys: Collection[Key]) -> dict[Key, Seen]:
    """A one-time job with a generated id is itself a run."""
    jobs = {
        (job.tenant_id, job.job_id): job for job in await watched_objects.jobs(connection, [(t, o.id) for t, o in keys])
    }
    own = {key: run_id for key in keys if (run_id := parse_uuid(key[1].id)) is not None}
    runs = await _runs(connection, ((tenant, run_id) for (tenant, _), run_id in own.items())) if own else {}
    seen: dict[Key, Seen] = {}
    for key in keys:
        job, run = jobs.get((key[0], key[1].id)), runs.get((key[0], own.get(key)))
        if job is not None or run is not None:
            status = None if run is None else _name(run.state)
            version = None if job is None else job.version
            seen[key] = ((job, run), Change(key[1].name, status=status, version=version))
    return seen


async def _poll_flows(connection: Connection, keys: Collection[Key]) -> dict[Key, Seen]:
    wanted = [(tenant, UUID(topic.id)) for tenant, topic in keys]
    runs = await _runs(connection, wanted)
    flows: dict[tuple[TenantId, UUID], list[WatchedFlow]] = {}
    found = await watched_objects.flows(connection, wanted)
    held = await held_tenants(connection, {row.tenant_id for row in found if row.step_state == StoredState.QUEUED})
    for row in found:
        flows.setdefault((row.tenant_id, row.flow_id), []).append(row)
    seen: dict[Key, Seen] = {}
    for key, named in zip(keys, wanted, strict=True):
        run, rows = runs.get(named), flows.get(named, [])
        if run is None:
            continue
        steps = Counter[str]()
        for row in rows:
            if row.step_state is not None:
                steps[_name(shown_of_listed(row.step_state, quota_holds=key[0] in held))] += row.number or 0
        state = [(row.state, row.reruns) for row in rows[:1]]
        seen[key] = ((run, state, sorted(steps.items())), Change(
            key[1].name, status=_name(run.state), steps=steps or None
        ))  # fmt: skip
    return seen


async def _poll_workers(connection: Connection, keys: Collection[Key]) -> dict[Key, Seen]:
    alive = await watched_objects.workers(connection, {tenant for tenant, _ in keys})
    return {key: ((alive.get(key[0]), alive.get(EVERY_TENANT)), Change(key[1].name, changes=1)) for key in keys}


async def _runs(connection: Connection, wanted: Any) -> dict[tuple[TenantId, UUID | None], WatchedRun]:
    found = await watched_objects.runs(connection, list(set(wanted)))
    held = await held_tenants(connection, {run.tenant_id for run in found if run.state == StoredState.QUEUED})
    return {
        (run.tenant_id, run.run_id): replace(run, state=shown_of_listed(run.state, quota_holds=run.tenant_id in held))
        for run in found
    }


def _change_of(topic: Topic, run: WatchedRun) -> Change:
    return Change(topic.name, status=_name(run.state), attempt=run.attempt, progress=run.progress)


def _name(state: int) -> str:
    return RunState.SCHEDULED if state == SHOWN_SCHEDULED else StoredState(state).name
