"""`mainspring why`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import find_id
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.which_run import RunOrJob, call_for_run

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring why 6f0a8b11",)


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


def _why_paused(client: Client, text: str) -> dict[str, str] | None:
    """Why the job is paused whose id is `text`, or contains it. None if it is not, or if a run of it is alive."""
    from mainspring.domain.errors import NotFound
    from mainspring.domain.transitions import JobStatus
    from mainspring.kernel.ids import parse_uuid

    try:
        job = client.job(text)
    except NotFound:
        match = None if parse_uuid(text) is not None else find_id(client, text, "run", "job")
        if match is None or match.kind != "job":
            return None
        job = client.job(match.id)
    if job.status != JobStatus.PAUSED:
        return None
    latest = client.job_status(job.job_id).latest_run
    if latest is not None and latest.end_time is None:
        return None
    resume = f"mainspring resume {job.job_id}"
    if job.pause_reason is None:
        why = f"the job is paused; go on with: {resume}"
    else:
        code = f" by the code of {job.declared_by}" if job.declared_by else ""
        why = f"{job.pause_reason}{code}; declare it again, or keep it with: {resume}"
    return {"job_id": job.job_id, "status": job.status, "why": why}
