"""The RUN argument: a run, or a job, which stands for its latest run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from mainspring.cli import completing
from mainspring.cli.find_id import find_id, is_missing, suggest

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

T = TypeVar("T")
RunOrJob = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The id of a run, or of a job: its latest run is used. The end or the beginning is enough.",
        autocompletion=completing.runs_and_jobs,
    ),
]


def call_for_run(client: Client, run_or_job: str, call: Callable[[str], T], *, kind: str = "run") -> T:
    """Call `call` with the run's id. If there is no such run, call it with the id of the job's latest run, or with the
    run or the job that `run_or_job` is a part of."""
    from mainspring.domain.errors import NotFound
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(run_or_job) is None:  # the ids of runs are UUIDs
        return call(_run_of(client, run_or_job, kind))
    try:
        return call(run_or_job)
    except NotFound as no_such_run:
        if not is_missing(no_such_run):
            raise
        try:
            run_id = _latest(client, run_or_job)
        except NotFound:
            raise no_such_run from None  # the id looks like a run id, so the error about the run is the useful one
    return call(run_id)


def find_run_id(client: Client, run_or_job: str) -> str:
    """Look up the run's id on the server."""
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(run_or_job) is None:
        return _run_of(client, run_or_job, "run")
    return call_for_run(client, run_or_job, lambda run_id: client.run(run_id).run_id)


def _run_of(client: Client, text: str, kind: str) -> str:
    """The latest run of the job `text`, or the run or the latest run of the job that `text` is a part of."""
    from mainspring.domain.errors import NotFound

    try:
        return _latest(client, text)
    except NotFound as error:
        if error.code != "no_run_or_job":
            raise
        match = find_id(client, text, kind, "job")
        if match is None:
            suggest(client, text, error)
            raise
    return _latest(client, match.id) if match.kind == "job" else match.id


def _latest(client: Client, job_id: str) -> str:
    from mainspring.domain.errors import NotFound

    try:
        run = client.job_status(job_id).latest_run
    except NotFound:
        raise NotFound(
            f"there is no run and no job {job_id!r}",
            code="no_run_or_job",
            hint="list them with: mainspring run list, mainspring job list",
        ) from None
    if run is None:
        raise NotFound(f"job {job_id} has not run yet", hint=f"to see its next fire time: mainspring job show {job_id}")
    return run.run_id
