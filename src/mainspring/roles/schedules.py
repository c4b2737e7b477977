"""The schedules of a worker's application: created, kept declared while the worker runs, and reported in its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from mainspring.domain.errors import Forbidden, MainspringError, Unauthorized, Unavailable
from mainspring.kernel.lifecycle import backoff
from mainspring.kernel.logs import get_logger
from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.app.declared_schedules import full_name

if TYPE_CHECKING:
    from mainspring.sdk.app.ensure_schedules import Ensured, ScheduleKeeper
    from mainspring.wire.applications import DeclarationView

log = get_logger("worker")

_AGAIN = 60.0  # seconds until a worker repeats what it declares
_SOON = 10.0  # the same while a newer version of the application runs, or schedules are refused


async def keep_schedules(
    app: Mainspring,
    server: str,
    token: str,
    *,
    ca: str | None = None,
    prune: bool = False,
    worker_id: Callable[[], UUID | None],
) -> None:
    """Runs beside the work, and neither waits for the other. Ends if the token may not do this, and when the worker
    leaves: then `worker_id` is None."""
    # Imported here, because a worker needs httpx and the intake of jobs for nothing else: 0.1 s of CPU time.
    from mainspring.sdk.app.ensure_schedules import ScheduleKeeper
    from mainspring.sdk.client.async_client import AsyncClient
    from mainspring.sdk.client.patience import DEFAULT_PATIENCE

    async with AsyncClient(server, token, ca=ca, patience=DEFAULT_PATIENCE) as client:
        keeping = Schedules(app, ScheduleKeeper(client, app, prune=prune), worker_id)
        pause: float | None = 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            pause = await keeping.step()


class Schedules:
    """What a worker does about the schedules of its application, step by step."""

    def __init__(self, app: Mainspring, keeper: ScheduleKeeper, worker_id: Callable[[], UUID | None]) -> None:
        self._app = app
        self._keeper = keeper
        self._worker_id = worker_id
        self._failures = 0
        self._error: str | None = None
        self._superseded = False
        self._ensured = False
        self._refused: dict[str, str] = {}
        self._reported: set[str] = set()

    async def step(self) -> float | None:
        """Ensure the schedules, or declare them again. Returns the seconds until the next step, None after the last."""
        worker_id = self._worker_id()
        if worker_id is None:
            return None
        try:
            return await self._step(worker_id)
        except Unavailable as error:
            self._failures += 1
            log.warning("cannot ensure the application's schedules yet", error=str(error))
            return backoff(self._failures)
        except MainspringError as error:
            if self._app.declares and str(error) != self._error:
                self._error = str(error)
                log.error(
                    "the application's schedules were refused",
                    application=self._app.name, error=str(error), field=error.field, hint=error.hint,
                )  # fmt: skip
            return None if isinstance(error, Forbidden | Unauthorized) else _AGAIN
        except Exception as error:  # a defect here must not cost the worker its runs
            log.error("cannot ensure the application's schedules", error=repr(error), exc_info=error)
            return _AGAIN

    async def _step(self, worker_id: UUID) -> float | None:
        # A person may change a job while its worker runs. So the jobs are compared with the code when this version
        # begins to count, or counts again, and not every minute.
        again = self._ensured and not self._superseded
        if again:
            view = await self._keeper.declare(worker_id)
            if view.resumed:
                log.info("schedules declared again", application=self._app.name, resumed=view.resumed)
            again = not view.outdated
        if not again or self._refused:
            ensured = await self._keeper.ensure(worker_id, only=self._refused if again else None)
            view = ensured.declaration
            if not ensured.superseded:
                self._log(ensured)
                self._ensured, self._refused = True, ensured.refused
        self._failures, self._error = 0, None
        self._tell_versions(view)
        if not self._app.declares and view.number == 0:
            return None  # it has never declared anything
        return _SOON if self._superseded or self._refused else _AGAIN

    def _log(self, ensured: Ensured) -> None:
        done: dict[str, list[str]] = {}
        for job_id, what in ensured.done.items():
            done.setdefault(what.replace(" ", "_"), []).append(job_id)
        unchanged = len(done.pop("unchanged", ()))
        if done or (self._app.declares and not self._ensured):
            log.info("schedules of the application", application=self._app.name, unchanged=unchanged, **done)
        functions = {schedule.job_id: full_name(schedule.task.function) for schedule in self._app.schedules}
        for job_id, reason in ensured.refused.items():
            if self._refused.get(job_id) != reason:
                log.error("schedule refused", schedule=job_id, function=functions.get(job_id), reason=reason)

    def _tell_versions(self, view: DeclarationView) -> None:
        superseded = not view.current
        if superseded and not self._superseded:
            log.warning(
                "a newer version of the application runs; this worker leaves the schedules to it",
                application=self._app.name,
            )
        self._superseded = superseded
        if superseded:
            return
        for job in view.undeclared:
            if job.job_id in self._reported and job.job_id not in view.pruned:
                continue
            self._reported.add(job.job_id)
            log.warning(
                "schedule no longer declared" + (", paused" if job.job_id in view.pruned else ""),
                application=self._app.name,
                schedule=job.job_id,
                name=job.name,
                declared_at=job.declared_at.isoformat(timespec="seconds"),
                status=job.status,
                **({} if job.own else {"hint": _UNSURE}),
            )


_UNSURE = (
    "it may belong to another application whose module has the same name, so it is never paused: "
    'give the application a name, as in Mainspring("billing")'
)
