"""Applications declare their schedules: the server records the version, resumes what is declared again, and pauses what
is no longer declared.

A worker reads its jobs, then declares, both in one request, and then writes what differs, guarded by the versions that
it read. So a worker that is superseded after this request cannot overwrite what the newer version writes: that happens
later and raises the versions. Pauses and resumes look again under the lock of the application.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from mainspring.domain.declarations import (
    Declaration,
    LeftBehind,
    forgotten,
    is_outdated,
    left_behind,
    newer_version,
    number_for,
)
from mainspring.domain.errors import InvalidInput
from mainspring.domain.job import NO_LONGER_DECLARED
from mainspring.domain.texts import shown
from mainspring.domain.transitions import JobStatus, StoredJobStatus
from mainspring.kernel.ids import TenantId, parse_uuid
from mainspring.operations.access.caller import Caller
from mainspring.operations.control.amend import Amender
from mainspring.operations.lookup import load_lane
from mainspring.operations.read.views import job_view
from mainspring.store import declarations
from mainspring.store.declarations import OwnedJob
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pages import cut
from mainspring.store.pool import Connection, Store
from mainspring.wire.applications import DeclarationRequest, DeclarationView, Undeclared
from mainspring.wire.formats import ChosenJobId
from mainspring.wire.jobs import JobView

_GONE = (StoredJobStatus.CANCELLED, StoredJobStatus.COMPLETED)
_MOST_SHOWN = 1000
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class Declarer:
    def __init__(self, store: Store, lanes: LaneRegistry, amender: Amender) -> None:
        self._store = store
        self._lanes = lanes
        self._amender = amender

    async def declare(self, caller: Caller, application: str, request: DeclarationRequest) -> DeclarationView:
        _check_name(application)
        tenant, worker_id = caller.tenant, _worker(request.worker_id)
        job_ids = sorted(set(request.job_ids))
        if len(job_ids) != len(request.job_ids):
            raise InvalidInput("job_ids contains an id twice", field="job_ids", hint="give each schedule its own id")
        jobs, unseen = await self._jobs(tenant, job_ids) if request.show_jobs else ([], [])
        recorded = await self._record(tenant, application, request, worker_id)
        if recorded is None:
            return DeclarationView(application, 0, current=False, jobs=jobs, unseen=unseen)
        mine, others = recorded
        if newer_version(mine, others) is not None:
            return DeclarationView(application, mine.number, current=False, jobs=jobs, unseen=unseen)
        behind = left_behind(mine, others)
        outdated = is_outdated(mine, others)
        async with self._store.reads.acquire() as connection:
            if outdated and request.show_jobs:
                await declarations.apply(connection, tenant, application, mine.fingerprint)
            declared = await declarations.owned(connection, tenant, application, job_ids)
            left = await declarations.owned(connection, tenant, application, sorted(behind))
            elsewhere = await declarations.elsewhere(connection, tenant, application, job_ids)
        left = [job for job in left if job.status not in _GONE]
        resumed = await self._resume(caller, application, mine, [job for job in declared if job.pruned])
        pruned: list[str] = []
        if request.prune:
            pruned = await self._prune(caller, application, mine, [job for job in left if behind[job.job_id].own])
        return DeclarationView(
            application,
            mine.number,
            current=True,
            resumed=resumed,
            pruned=pruned,
            undeclared=[_undeclared(job, behind[job.job_id], pruned) for job in left[:_MOST_SHOWN]],
            outdated=outdated,
            elsewhere=elsewhere,
            jobs=jobs,
            unseen=unseen,
        )

    async def _jobs(self, tenant: TenantId, job_ids: Sequence[str]) -> tuple[list[JobView], list[str]]:
        """The jobs that exist, and the ids of which that is not known because they did not fit into the page."""
        if not job_ids:
            return [], []
        async with self._store.reads.acquire() as connection:
            rows = await declarations.jobs_by_id(connection, tenant, job_ids)
            page, more = cut(rows, len(job_ids))
            views = [job_view(row, await load_lane(self._lanes, connection, row.lane_id)) for row in page]
        seen = {row.job_id for row in page}
        return views, [job_id for job_id in job_ids if more and job_id not in seen]

    async def _record(
        self, tenant: TenantId, application: str, request: DeclarationRequest, worker_id: UUID | None
    ) -> tuple[Declaration, list[Declaration]] | None:
        """Record that this version is declared. Return it and the other versions, or None if the worker is leaving:
        then it must not take schedules away from those that stay."""
        async with self._store.reads.acquire() as connection:
            if worker_id is not None and await declarations.is_leaving(connection, worker_id):
                return None
            mine, others = _split(await declarations.of_application(connection, tenant, application), request)
            if mine.number == 0 and not others and not request.job_ids:
                return mine, others  # an application without schedules leaves no trace
            if number_for(mine, others) == mine.number:
                await declarations.renew(connection, tenant, application, mine.fingerprint)
                if worker_id is not None:
                    await declarations.link_worker(connection, tenant, application, worker_id, mine.number)
                return mine, others
        async with self._store.change() as connection:
            await declarations.take_turn(connection, tenant, application)
            mine, others = _split(await declarations.of_application(connection, tenant, application), request)
            mine = msgspec.structs.replace(mine, number=number_for(mine, others), live=True)
            await declarations.put(connection, tenant, application, mine)
            if worker_id is not None:
                await declarations.link_worker(connection, tenant, application, worker_id, mine.number)
            left = await declarations.owned(connection, tenant, application, sorted(left_behind(mine, others)))
            spent = forgotten(mine, others, [job.job_id for job in left])
            await declarations.forget(connection, tenant, application, spent)
        return mine, [other for other in others if other.number not in spent]

    async def _still_current(
        self, connection: Connection, tenant: TenantId, application: str, mine: Declaration
    ) -> bool:
        """Whether no newer version has been declared. None can be until the transaction ends."""
        await declarations.take_turn(connection, tenant, application)
        present = await declarations.of_application(connection, tenant, application)
        return newer_version(mine, [one for one in present if one.fingerprint != mine.fingerprint]) is None

    async def _resume(
        self, caller: Caller, application: str, mine: Declaration, found: Sequence[OwnedJob]
    ) -> list[str]:
        async def still(connection: Connection) -> bool:
            return await self._still_current(connection, caller.tenant, application, mine)

        return [
            job.job_id for job in found if await self._amender.resume_declared(caller, application, job.job_id, still)
        ]

    async def _prune(self, caller: Caller, application: str, mine: Declaration, left: Sequence[OwnedJob]) -> list[str]:
        async def still(connection: Connection) -> bool:
            return await self._still_current(connection, caller.tenant, application, mine)

        return [
            job.job_id
            for job in left
            if job.status == StoredJobStatus.SCHEDULED
            and await self._amender.prune(caller, application, job.job_id, still)
        ]


def _split(present: Sequence[Declaration], request: DeclarationRequest) -> tuple[Declaration, list[Declaration]]:
    """The declaration of the request, with the number 0 if it is new, and the other ones."""
    mine = next((one for one in present if one.fingerprint == request.fingerprint), None)
    if mine is None:
        mine = Declaration(0, request.fingerprint, request.named, request.source, frozenset(request.job_ids), _NEVER)
    return mine, [other for other in present if other.fingerprint != request.fingerprint]


def _undeclared(job: OwnedJob, left: LeftBehind, pruned: Sequence[str]) -> Undeclared:
    paused_here = job.job_id in pruned
    status = StoredJobStatus.PAUSED if paused_here else StoredJobStatus(job.status)
    return Undeclared(
        job.job_id,
        job.name,
        JobStatus(status.name).value,
        left.declared_at,
        own=left.own,
        pause_reason=NO_LONGER_DECLARED if paused_here or job.pruned else None,
    )


def _check_name(application: str) -> None:
    try:
        msgspec.convert(application, ChosenJobId)
    except msgspec.ValidationError:
        raise InvalidInput(
            f"{shown(application)} is not the name of an application", field="application",
            expected="at most 200 letters, digits, and . _ -",
        ) from None  # fmt: skip


def _worker(text: str | None) -> UUID | None:
    if text is None:
        return None
    worker_id = parse_uuid(text)
    if worker_id is None:
        raise InvalidInput(f"{shown(text)} is not the id of a worker", field="worker_id", expected="a UUID")
    return worker_id
