"""`mainspring why`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.which_run import RunOrJob, call_for_run

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring why 0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11",)


def command(
    run_or_job: RunOrJob,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Explain in one sentence why a run is not running, or why a job is paused."""
    with connect(url, token_file, data) as client:
        paused = _why_paused(client, run_or_job)
        if paused is not None:
            show_json(paused) if as_json else show_line(f"{paused['status']}: {paused['why']}")
            return
        answer = call_for_run(client, run_or_job, client.why)
    if as_json:
        show_json(answer)
    else:
        show_line(f"{answer.status}: {answer.why}")


def _why_paused(client: Client, job_id: str) -> dict[str, str] | None:
    """Why the job with this id is paused. None if it is not, or if a run of it is alive."""
    from mainspring.domain.errors import NotFound
    from mainspring.domain.transitions import JobStatus
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(job_id) is not None:
        return None
    try:
        job = client.job(job_id)
        latest = client.job_status(job_id).latest_run if job.status == JobStatus.PAUSED else None
    except NotFound:
        return None
    if job.status != JobStatus.PAUSED or (latest is not None and latest.end_time is None):
        return None
    if job.pause_reason is None:
        return {
            "job_id": job_id,
            "status": job.status,
            "why": f"the job is paused; go on with: mainspring resume {job_id}",
        }
    code = f" by the code of {job.declared_by}" if job.declared_by else ""
    why = f"{job.pause_reason}{code}; declare it again, or keep it with: mainspring resume {job_id}"
    return {"job_id": job_id, "status": job.status, "why": why}
