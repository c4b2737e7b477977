"""Creates and updates the recurring jobs and the workflows that the application declares. A worker does so at its
start."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from mainspring.domain.errors import (
    Conflict,
    Forbidden,
    MainspringError,
    NotFound,
    Unauthorized,
    Unavailable,
    VersionMismatch,
)
from mainspring.domain.transitions import JobStatus
from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.app.declared_schedules import AppSchedule
from mainspring.sdk.app.differences import differences
from mainspring.sdk.app.ensure_workflows import Done, declared_workflow, put_workflow
from mainspring.sdk.client import calls
from mainspring.sdk.client.core import encode
from mainspring.sdk.client.job_fields import job_request
from mainspring.sdk.workflows.workflow import Workflow
from mainspring.wire.applications import DeclarationRequest, DeclarationView
from mainspring.wire.jobs import JobView

if TYPE_CHECKING:
    from mainspring.sdk.client.async_client import AsyncClient

T = TypeVar("T")
Declared = AppSchedule | Workflow
_TRIES = 5
_AT_ONCE = 8
_FOR_ALL = (Unavailable, Forbidden, Unauthorized)  # errors that the other schedules would meet too


@dataclass(slots=True)
class Ensured:
    """What became of the schedules. done: of each that exists now. refused: the reason, for the others. declaration:
    the server's answer; None from a server that does not know applications. superseded: a newer version of the
    application runs, so nothing was changed."""

    done: dict[str, Done] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    declaration: DeclarationView | None = None

    @property
    def superseded(self) -> bool:
        return self.declaration is not None and not self.declaration.current


class ScheduleKeeper:
    """Declares the schedules of one application to a server, and makes its jobs follow the code."""

    def __init__(self, client: AsyncClient, app: Mainspring, *, prune: bool = False) -> None:
        self._client = client
        self._app = app
        self._prune = prune or app.prune_schedules
        self._wanted = {one.job_id: job_request(one.declared_by(app.name)) for one in app.schedules}
        self._wanted |= {one.job_id: declared_workflow(one, app.name) for one in app.workflows.values()}
        self._fingerprint = _digest(app.named, self._wanted)

    async def declare(self, worker_id: UUID | None = None, *, show_jobs: bool = False) -> DeclarationView | None:
        """Tell the server which schedules this version declares. None if the server does not know applications."""
        request = DeclarationRequest(
            job_ids=list(self._wanted),
            fingerprint=self._fingerprint,
            source=self._app.source,
            named=self._app.named,
            worker_id=None if worker_id is None else str(worker_id),
            prune=self._prune,
            show_jobs=show_jobs,
        )
        try:
            return await self._client.send(calls.declare(self._app.name, request))
        except NotFound:
            return None

    async def ensure(self, worker_id: UUID | None = None, only: Collection[str] | None = None) -> Ensured:
        """Create or update the jobs of all schedules, or of `only` these. Each on its own: one that is refused does not
        keep the others from being created.

        Fields that the code does not set stay as operators set them. A cancelled job stays cancelled. Nothing is
        written for a job that does not differ.
        """
        declared: list[Declared] = [*self._app.schedules, *self._app.workflows.values()]
        left = [one for one in declared if only is None or one.job_id in only]
        ensured = Ensured()
        resumed: set[str] = set()
        for _ in range(_TRIES):
            ensured.declaration = view = await self.declare(worker_id, show_jobs=True)
            if view is None:
                return await self._ensure_at_old_server(left)
            if view.current and view.unseen:
                ensured.declaration = view = await self._with_unseen(view, worker_id) or view
            if not view.current:
                return ensured
            resumed |= {*view.resumed}
            present = {job.job_id: job for job in view.jobs}
            try:
                left = await self._write(ensured, left, view, present)
            except _OldServer:
                return await self._ensure_at_old_server(left)
            if not left:
                break
        for job_id in resumed & {job_id for job_id, done in ensured.done.items() if done == "unchanged"}:
            ensured.done[job_id] = "resumed"
        return ensured

    async def _with_unseen(self, view: DeclarationView, worker_id: UUID | None) -> DeclarationView | None:
        """The same with the jobs that did not fit into the answer. They are read before this version is declared again:
        it must still be current after its jobs have been read."""
        found = await _all(self._read, view.unseen)
        again = await self.declare(worker_id)
        if again is not None:
            again.jobs = [*view.jobs, *(job for job in found if job is not None)]
            again.resumed = [*view.resumed, *again.resumed]
        return again

    async def _read(self, job_id: str) -> JobView | None:
        try:
            return await self._client.job(job_id)
        except NotFound:
            return None

    async def _write(
        self, ensured: Ensured, schedules: list[Declared], view: DeclarationView, present: dict[str, JobView]
    ) -> list[Declared]:
        """Write what differs. Returns the schedules whose jobs have changed meanwhile, and have to be read again."""

        async def write(schedule: Declared) -> Declared | None:
            job_id = schedule.job_id
            ensured.refused.pop(job_id, None)
            owner = view.elsewhere.get(job_id)
            if owner is not None:
                ensured.refused[job_id] = (
                    f"the application {owner} declares it too, and a worker of it runs. Remove it from one of both, "
                    "or give this schedule its own job_id."
                )
                return None
            try:
                ensured.done[job_id] = await self._put(schedule, present.get(job_id))
            except Conflict as error:  # also a version that is no longer the one that was read
                ensured.refused[job_id] = error.in_sentences()
                return schedule
            except _FOR_ALL:
                raise
            except MainspringError as error:
                if error.code == "unknown_field" and error.field == "declared_by":
                    raise _OldServer from None
                ensured.refused[job_id] = error.in_sentences()
                return None
            adopted = present.get(job_id)
            paused_by_another = adopted is not None and adopted.pause_reason and adopted.declared_by != self._app.name
            return schedule if paused_by_another else None  # now it is ours, and the next declaration resumes it

        return [schedule for schedule in await _all(write, schedules) if schedule is not None]

    async def _put(self, schedule: Declared, present: JobView | None) -> Done:
        wanted = self._wanted[schedule.job_id]
        if isinstance(schedule, Workflow):
            return await put_workflow(self._client, wanted, present)
        if present is None:
            await self._client.submit(**schedule.declared_by(self._app.name))
            return "created"
        if present.status == JobStatus.CANCELLED:
            return "left cancelled"
        changes: Any = differences(present, wanted)
        if not changes:
            return "unchanged"
        await self._client.update_job(schedule.job_id, if_version=present.version, **changes)
        return "updated"

    async def _ensure_at_old_server(self, schedules: Iterable[Declared]) -> Ensured:
        """A server older than this code refuses `declared_by`. The jobs follow the code as they did before."""
        ensured = Ensured()

        async def ensure(schedule: Declared) -> None:
            if isinstance(schedule, Workflow):
                ensured.refused[schedule.job_id] = "the server is older than workflows"
                return
            try:
                ensured.done[schedule.job_id] = await self._ensure_undeclared(schedule)
            except _FOR_ALL:
                raise
            except MainspringError as error:
                ensured.refused[schedule.job_id] = error.in_sentences()

        await _all(ensure, schedules)
        return ensured

    async def _ensure_undeclared(self, schedule: AppSchedule) -> Done:
        fields = schedule.fields()
        if await self._read(schedule.job_id) is None:  # a create would begin a new generation of a cancelled job
            try:
                await self._client.submit(**fields)
            except Conflict:
                pass
            else:
                return "created"
        for _ in range(_TRIES):
            present = await self._client.job(schedule.job_id)
            if present.status == JobStatus.CANCELLED:
                return "left cancelled"
            changes: Any = differences(present, job_request(fields))
            if not changes:
                return "unchanged"
            try:
                await self._client.update_job(schedule.job_id, if_version=present.version, **changes)
            except VersionMismatch:
                continue  # another worker of the same application changed it: read it again
            return "updated"
        raise Conflict(f"job {schedule.job_id} kept changing while it was being updated", field="job_id")


async def ensure_schedules(
    client: AsyncClient, app: Mainspring, *, prune: bool = False, worker_id: UUID | None = None
) -> Ensured:
    """Declare the schedules of `app`, and create or update their jobs. See `ScheduleKeeper.ensure`."""
    return await ScheduleKeeper(client, app, prune=prune).ensure(worker_id)


class _OldServer(Exception):
    """A server behind the same address does not know declarations."""


def _digest(named: bool, wanted: dict[str, dict[str, Any]]) -> str:
    """The same for every worker of a version, and another for every other set of schedules."""
    plain = msgspec.json.decode(encode([named, wanted]))
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


async def _all(do: Callable[[Any], Awaitable[T]], items: Iterable[Any]) -> list[T]:
    """The results of `do` for all items, a few at a time. Raises the first error when those under way have ended."""
    waiting, results = list(items), []
    while waiting:
        batch, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        for result in await asyncio.gather(*map(do, batch), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            results.append(result)
    return results
