"""The RUN argument: the id of a run, or the id of a job, which stands for its latest run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

T = TypeVar("T")
RunOrJob = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or of a job: its latest run is used.")]


def call_for_run(client: Client, run_or_job: str, call: Callable[[str], T]) -> T:
    """Call `call` with the run's id. If there is no such run, call it with the id of the job's latest run."""
    from mainspring.domain.errors import NotFound
    from mainspring.kernel.ids import parse_uuid

    try:
        return call(run_or_job)
    except NotFound as no_such_run:
        try:
            run_id = _latest(client, run_or_job)
        except NotFound:
            if parse_uuid(run_or_job) is None:
                raise
            raise no_such_run from None  # the id looks like a run id, so the error about the run is the useful one
    return call(run_id)


def find_run_id(client: Client, run_or_job: str) -> str:
    """Look up the run's id on the server."""
    from mainspring.domain.errors import NotFound

    try:
        return client.run(run_or_job).run_id
    except NotFound:
        return _latest(client, run_or_job)


def _latest(client: Client, job_id: str) -> str:
    from mainspring.domain.errors import NotFound

    try:
        run = client.job_status(job_id).latest_run
    except NotFound:
        raise NotFound(
            f"there is no run and no job {job_id!r}", hint="list them with: mainspring runs, mainspring jobs"
        ) from None
    if run is None:
        raise NotFound(f"job {job_id} has not run yet", hint=f"to see its next fire time: mainspring job {job_id}")
    return run.run_id
