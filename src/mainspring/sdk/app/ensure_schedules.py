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
    """What became of the schedules. declaration: the server's answer. done: of each that exists now. refused: the
    reason, for the others. superseded: a newer version of the application runs, so nothing was changed."""

    declaration: DeclarationView
    done: dict[str, Done] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def superseded(self) -> bool:
        return not self.declaration.current


class ScheduleKeeper:
    """Declares the schedules of one application to a server, and makes its jobs follow the code."""

    def __init__(self, client: AsyncClient, app: Mainspring, *, prune: bool = False) -> None:
        self._client = client
        self._app = app
        self._prune = prune or app.prune_schedules
        self._wanted = {one.job_id: job_request(one.declared_by(app.name)) for one in app.schedules}
        self._wanted |= {one.job_id: declared_workflow(one, app.name) for one in app.workflows.values()}
        settings = {setting.key: {"setting": setting.body()} for setting in app.settings}
        self._fingerprint = _digest(app.named, self._wanted | settings)

    async def declare(self, worker_id: UUID | None = None, *, show_jobs: bool = False) -> DeclarationView:
        """Tell the server which schedules this version declares."""
        request = DeclarationRequest(
            job_ids=list(self._wanted),
            fingerprint=self._fingerprint,
            source=self._app.source,
            named=self._app.named,
            worker_id=None if worker_id is None else str(worker_id),
            prune=self._prune,
            show_jobs=show_jobs,
        )
        return await self._client.send(calls.declare(self._app.name, request))

    async def ensure(self, worker_id: UUID | None = None, only: Collection[str] | None = None) -> Ensured:
        """Create or update the jobs of all schedules, or of `only` these. Each on its own: one that is refused does not
        keep the others from being created.

        Fields that the code does not set stay as operators set them. A cancelled job stays cancelled. Nothing is
        written for a job that does not differ.
        """
        declared: list[Declared] = [*self._app.schedules, *self._app.workflows.values()]
        left = [one for one in declared if only is None or one.job_id in only]
        ensured = Ensured(await self._declare_and_read(worker_id))
        resumed: set[str] = set()
        for _ in range(_TRIES):
            if ensured.superseded:
                return ensured
            resumed |= {*ensured.declaration.resumed}
            await self._put_settings(ensured, only)
            left = await self._write(ensured, left)
            if not left:
                break
            ensured.declaration = await self._declare_and_read(worker_id)
        for job_id in resumed & {job_id for job_id, done in ensured.done.items() if done == "unchanged"}:
            ensured.done[job_id] = "resumed"
        return ensured

    async def _declare_and_read(self, worker_id: UUID | None) -> DeclarationView:
        """Declare this version, and read its jobs. Those that do not fit into the answer are read one by one, and then
        this version is declared again: it must still be current after its jobs have been read."""
        view = await self.declare(worker_id, show_jobs=True)
        if not view.current or not view.unseen:
            return view
        found = await _all(self._read, view.unseen)
        again = await self.declare(worker_id)
        again.jobs = [*view.jobs, *(job for job in found if job is not None)]
        again.resumed = [*view.resumed, *again.resumed]
        return again

    async def _read(self, job_id: str) -> JobView | None:
        try:
            return await self._client.job(job_id)
        except NotFound:
            return None

    async def _put_settings(self, ensured: Ensured, only: Collection[str] | None) -> None:
        """Store calendars and limits, once and before the schedules that name them."""
        for setting in self._app.settings:
            if setting.key in ensured.done or (only is not None and setting.key not in only):
                continue
            ensured.refused.pop(setting.key, None)
            try:
                ensured.done[setting.key] = await setting.put(self._client)
            except _FOR_ALL:
                raise
            except MainspringError as error:
                ensured.refused[setting.key] = error.in_sentences()

    async def _write(self, ensured: Ensured, schedules: list[Declared]) -> list[Declared]:
        """Write what differs. Returns the schedules whose jobs have changed meanwhile, and have to be read again."""
        view = ensured.declaration
        present = {job.job_id: job for job in view.jobs}

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
                ensured.refused[job_id] = error.in_sentences()
                return None
            adopted = present.get(job_id)
            paused_by_another = adopted is not None and adopted.pause_reason and adopted.declared_by != self._app.name
            return schedule if paused_by_another else None  # now it is ours, and the next declaration resumes it

        return [schedule for schedule in await _all(write, schedules) if schedule is not None]

    async def _put(self, schedule: Declared, present: JobView | None) -> Done:
        wanted = self._wanted[schedule.job_id]
        if isinstance(schedule, Workflow):
            return await put_workflow(self._client, wanted, present, schedule.if_exists)
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


async def ensure_schedules(
    client: AsyncClient, app: Mainspring, *, prune: bool = False, worker_id: UUID | None = None
) -> Ensured:
    """Declare the schedules of `app`, and create or update their jobs. See `ScheduleKeeper.ensure`."""
    return await ScheduleKeeper(client, app, prune=prune).ensure(worker_id)


def _digest(named: bool, wanted: dict[str, dict[str, Any]]) -> str:
    """A digest that is equal for all workers of a version and differs for every other set of schedules."""
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
