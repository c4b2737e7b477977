"""What the verb `cancel` of runs and jobs says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.screen import say, show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.jobs import JobView
    from mainspring.wire.runs import RunView


def show_cancelled_run(run: RunView, *, as_json: bool) -> None:
    if as_json:
        show_json(run)
    else:
        show_line(_words(run))


def show_cancelled_job(client: Client, job: JobView, *, as_json: bool) -> None:
    """And what becomes of its latest run, if that is alive."""
    if as_json:
        show_json(job)
        return
    last = client.job_status(job.job_id).latest_run
    show_line(f"job {job.job_id} is {job.status}")
    if last is not None and last.end_time is None:
        say(_words(last))


def _words(run: RunView) -> str:
    if run.status == "CANCELLED":
        return f"run {run.run_id} is CANCELLED"
    return f"run {run.run_id} was asked to stop ({run.status}); it becomes CANCELLED when its processes have ended"
