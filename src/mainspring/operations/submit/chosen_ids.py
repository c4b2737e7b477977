"""Ids that clients choose: whether the job that has an id has ended, so that a new generation of it can begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainspring.domain.errors import Conflict
from mainspring.domain.refusals import id_taken, job_exists, run_lives
from mainspring.domain.transitions import JobStatus, StoredJobStatus
from mainspring.operations.access.caller import Caller
from mainspring.store import jobs
from mainspring.store.jobs import Holder
from mainspring.store.pool import Connection
from mainspring.wire.protocol import GENERATED_KEY_OF_0_2_0

_ALIVE = (StoredJobStatus.SCHEDULED, StoredJobStatus.PAUSED)


async def still_held(connection: Connection, caller: Caller, job_ids: Sequence[str]) -> list[tuple[str, Conflict]]:
    """Lock ids that were taken before, and their jobs. Return those that cannot be used again, and why. A narrowed
    token is not told what became of their jobs, which may lie outside."""
    holders = await jobs.lock_holders(connection, caller.tenant, job_ids)
    refused = [
        (holder.job_id, why if caller.reaches_all else _taken(holder.job_id))
        for holder in holders
        if (why := _objection(holder)) is not None
    ]
    # An id that was forgotten since it was seen has no row.
    refused += [(job_id, _forgotten(job_id)) for job_id in set(job_ids) - {holder.job_id for holder in holders}]
    return refused


def of_old_clients(keys: Mapping[str, str | None]) -> list[tuple[str, Conflict]]:
    """Those of the ids, by their requests' keys, that an SDK without generations asks for."""
    return [
        (job_id, id_taken(f"a job called {job_id!r} exists already", "choose another job_id, or use a newer SDK"))
        for job_id, key in keys.items()
        if key is not None and key.startswith(GENERATED_KEY_OF_0_2_0)
    ]


def generated_id(job_id: str) -> Conflict:
    return id_taken(
        f"{job_id!r} was generated for another job, and such ids are not used again",
        "leave job_id out, or choose another one",
    )


def twice_in_a_batch(job_id: str) -> Conflict:
    return id_taken(f"the batch has another job called {job_id!r}", "choose another job_id")


def _objection(holder: Holder) -> Conflict | None:
    if holder.status in _ALIVE:
        return job_exists(holder.job_id, JobStatus(StoredJobStatus(holder.status).name))
    return None if holder.run_id is None else run_lives(holder.job_id, str(holder.run_id))


def _taken(job_id: str) -> Conflict:
    return id_taken(f"a job called {job_id!r} exists already", "choose another job_id")


def _forgotten(job_id: str) -> Conflict:
    return Conflict(
        f"the job_id {job_id!r} changed meanwhile", code="changed_meanwhile", field="job_id", hint="try again"
    )
