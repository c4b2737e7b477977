"""Which run is meant: a run by its id, or a job by its id, which means its latest run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

T = TypeVar("T")
RunOrJob = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or a job's: then its latest run.")]


def of_run(client: Client, run_or_job: str, call: Callable[[str], T]) -> T:
    """What `call` gives for the run's id; when no run has that id, for that of the job's latest run."""
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
            raise no_such_run from None  # an id that looks like a run's: what was said of the run is what counts
    return call(run_id)


def run_of(client: Client, run_or_job: str) -> str:
    """The run's id; asks the server."""
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
        raise NotFound(f"there is no run and no job {job_id!r}", hint="see: mainspring runs, mainspring jobs") from None
    if run is None:
        raise NotFound(f"job {job_id} has not run yet", hint=f"see when it will: mainspring job {job_id}")
    return run.run_id
