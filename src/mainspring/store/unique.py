"""The keys of unique jobs: which jobs have them, and changes to jobs that wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.tags import changed_meanwhile
from mainspring.kernel.ids import TenantId, parse_uuid
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("unique")

Job = tuple[str, int]  # id and generation
_CHUNK = 1000  # rows per statement, so that reading them does not block others


class NewKey(msgspec.Struct, frozen=True):
    """A key for a job: the states in which the job has it, and for how many seconds at most."""

    digest: bytes
    job_id: str
    generation: int
    states: Sequence[str]
    seconds: float


class TakenKey(msgspec.Struct, frozen=True):
    """A locked key and the job that has it. `fresh`: this transaction inserted it."""

    digest: bytes
    job_id: str
    generation: int
    states: list[str]
    until: datetime
    fresh: bool


class HolderState(msgspec.Struct, frozen=True):
    job_id: str
    generation: int
    state: str
    now: datetime


class HolderPlace(msgspec.Struct, frozen=True):
    """Where a job that has a key lies: its row, or one of its live runs."""

    job_id: str
    generation: int
    lane_id: int
    spec_text: str | None


class WaitingJob(msgspec.Struct, frozen=True):
    """A locked job that waits for its time."""

    job_id: str
    generation: int
    version: int
    next_fire_at: datetime | None
    paused_from: datetime | None
    lane_id: int
    schedule_text: str
    spec_text: str | None
    created_by: UUID | None = None


class UniqueWaitingRun(msgspec.Struct, frozen=True):
    """A locked run that no worker has."""

    run_id: UUID
    job_id: str
    generation: int
    fence: int
    attempt: int
    trigger: str | None
    ready_at: datetime
    lane_id: int
    spec_text: str | None
    created_by: UUID | None = None

    @property
    def started(self) -> bool:
        """Whether an attempt was made: of this run, or of the one that it repeats."""
        return self.attempt > 0 or self.trigger not in (None, "at")


class ChangedJob(msgspec.Struct, frozen=True):
    """A waiting job with its new times, and its new payload and spec if it is `replaced`."""

    before: WaitingJob
    schedule_text: str
    next_fire_at: datetime | None
    paused_from: datetime | None
    replaced: bool
    payload: str | None = None
    spec_text: str | None = None


class ChangedRun(msgspec.Struct, frozen=True):
    """A waiting run with its new time, and its new payload and spec if it is `replaced`."""

    before: UniqueWaitingRun
    ready_at: datetime | None
    replaced: bool
    payload: str | None = None
    spec_text: str | None = None


_take = RowQuery(TakenKey, _SQL["take_unique_keys"])
_states = RowQuery(HolderState, _SQL["states_of_holders"])
_places = RowQuery(HolderPlace, _SQL["places_of_holders"])
_lock_jobs = RowQuery(WaitingJob, _SQL["lock_waiting_jobs"])
_lock_runs = RowQuery(UniqueWaitingRun, _SQL["lock_waiting_runs"])


async def take(connection: Connection, tenant: TenantId, keys: Sequence[NewKey]) -> list[TakenKey]:
    """Lock keys, and insert those that are missing. All are returned, with the jobs that have them."""
    return await _take.fetch(
        connection,
        tenant,
        [key.digest for key in keys],
        [key.job_id for key in keys],
        [_array(key.states) for key in keys],
        [key.seconds for key in keys],
    )


async def take_over(connection: Connection, tenant: TenantId, keys: Sequence[NewKey]) -> None:
    """Give keys that this transaction has locked to other jobs."""
    done = await connection.execute(
        _SQL["take_over_unique_keys"],
        tenant,
        [key.digest for key in keys],
        [key.job_id for key in keys],
        [key.generation for key in keys],
        [_array(key.states) for key in keys],
        [key.seconds for key in keys],
    )
    _check_count(done, len(keys))


async def held(connection: Connection, tenant: TenantId, keys: Sequence[TakenKey]) -> dict[bytes, set[str]]:
    """The locked keys that are taken: their time is not over, and their job is in some of their states."""
    by_job = {(key.job_id, key.generation): key for key in keys}
    found: dict[bytes, set[str]] = {}
    for row in await _states.fetch(connection, tenant, [job[0] for job in by_job], [job[1] for job in by_job]):
        key = by_job[row.job_id, row.generation]
        if row.state in key.states and row.now < key.until:
            found.setdefault(key.digest, set()).add(row.state)
    return found


async def places(connection: Connection, tenant: TenantId, keys: Sequence[TakenKey]) -> list[HolderPlace]:
    """Where the live jobs lie that have these keys."""
    found = []
    for start in range(0, len(keys), _CHUNK):
        some = keys[start : start + _CHUNK]
        ids, generations = [key.job_id for key in some], [key.generation for key in some]
        found += await _places.fetch(connection, tenant, ids, generations)
    return found


async def lock_waiting(
    connection: Connection, tenant: TenantId, job_ids: Sequence[str]
) -> tuple[dict[Job, WaitingJob], dict[Job, UniqueWaitingRun]]:
    """Lock the jobs that wait for their time, and the runs that wait for a worker. If a job has several runs, the first
    one that was not created by hand is returned."""
    ordered = sorted(job_ids)
    chunks = [ordered[start : start + _CHUNK] for start in range(0, len(ordered), _CHUNK)]
    jobs: dict[Job, WaitingJob] = {}
    for chunk in chunks:
        jobs |= {(row.job_id, row.generation): row for row in await _lock_jobs.fetch(connection, tenant, chunk)}
    runs: dict[Job, UniqueWaitingRun] = {}
    for chunk in chunks:
        own = [run_id for job_id in chunk if (run_id := parse_uuid(job_id)) is not None]
        for row in await _lock_runs.fetch(connection, tenant, chunk, own):
            job = (row.job_id, row.generation)
            if job not in runs or row.trigger in (None, "at"):
                runs[job] = row
    return jobs, runs


async def change_jobs(connection: Connection, tenant: TenantId, changed: Sequence[ChangedJob]) -> None:
    done = await connection.execute(
        _SQL["redefine_waiting_jobs"],
        tenant,
        [job.before.job_id for job in changed],
        [job.before.generation for job in changed],
        [job.before.version for job in changed],
        [job.schedule_text for job in changed],
        [job.replaced for job in changed],
        [job.payload for job in changed],
        [job.spec_text for job in changed],
        [job.next_fire_at for job in changed],
        [job.paused_from for job in changed],
    )
    _check_count(done, len(changed))


async def change_runs(connection: Connection, tenant: TenantId, changed: Sequence[ChangedRun]) -> None:
    done = await connection.execute(
        _SQL["redefine_waiting_runs"],
        tenant,
        [run.before.run_id for run in changed],
        [run.before.fence for run in changed],
        [run.replaced for run in changed],
        [run.payload for run in changed],
        [run.spec_text for run in changed],
        [run.ready_at for run in changed],
    )
    _check_count(done, len(changed))


async def set_merged(connection: Connection, tenant: TenantId, answers: Sequence[tuple[str, str, int, str]]) -> None:
    """Note what became of submissions (idempotency key, job id, generation, answer) that this transaction made."""
    done = await connection.execute(
        _SQL["set_merged_keys"], tenant, *([*column] for column in zip(*answers, strict=True))
    )
    _check_count(done, len(answers))


async def prune(connection: Connection, batch: int = 1000) -> int:
    """Delete keys whose time is over. Returns how many."""
    deleted = 0
    while True:
        done = _count(await connection.execute(_SQL["prune_unique_keys"], batch))
        deleted += done
        if done < batch:
            return deleted


def _array(words: Sequence[str]) -> str:
    return "{" + ",".join(words) + "}"


def _count(done: str) -> int:
    return int(done.rpartition(" ")[2])


def _check_count(done: str, expected: int) -> None:
    if _count(done) != expected:
        raise changed_meanwhile("jobs")
