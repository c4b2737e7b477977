"""`mainspring run`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.listing import UtcFlag
from mainspring.cli.screen import show_fields, show_json
from mainspring.cli.waiting import brief, wait_and_show
from mainspring.cli.which_run import RunOrJob, call_for_run
from mainspring.cli.wording import Times, memory, span

if TYPE_CHECKING:
    from mainspring.wire.runs import RunView

EXAMPLES = ("mainspring run 6f0a8b11 --watch",)


def command(
    run_or_job: RunOrJob,
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait until the run ends. Exit with 0 only on SUCCESS.")
    ] = False,
    utc: UtcFlag = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show a run: its status, times, error and result."""
    with connect(url, token_file, data) as client:
        run = call_for_run(client, run_or_job, client.run)
        if watch:
            handle = client.handle(run.job_id, run.run_id)
            raise typer.Exit(wait_and_show(client, handle, timeout=None, as_json=as_json))
    if as_json:
        show_json(run)
    else:
        show_fields(_fields(run, Times(datetime.now(UTC), utc)))


def _fields(run: RunView, times: Times) -> list[tuple[str, str | None]]:
    import msgspec

    return [
        ("run", run.run_id),
        ("job", run.job_id),
        ("name", run.name),
        ("status", run.status),
        ("reason", run.reason),
        ("task", f"{run.task}, queue {run.queue}, priority {run.priority}"),
        ("trigger", run.trigger),
        ("replay of", run.replay_of),
        ("due", times.full(run.scheduled_for)),
        (
            "next try",
            times.full(run.ready_at) if run.ready_at is not None and run.ready_at > times.now else None,
        ),
        ("started", times.full(run.start_time) if run.start_time is not None else None),
        ("ended", times.full(run.end_time) if run.end_time is not None else None),
        ("took", span(run.duration) if run.duration is not None else None),
        ("progress", _progress(run)),
        ("used", _used(run)),
        ("attempt", f"{run.attempt_number} of {run.max_attempts}"),
        ("losses", str(run.losses) if run.losses else None),
        ("snoozes", str(run.snoozes) if run.snoozes else None),
        ("worker", " ".join(filter(None, (run.executor, run.executor_id))) or None),
        ("heard", times.full(run.modified_time) if run.status == "RUNNING" else None),
        ("error", brief(run.error_message) if run.error_message else None),
        ("result", msgspec.json.encode(run.result).decode() if run.result is not None else None),
        ("payload", _payload(run)),
        ("log", run.log_url),
    ]


def _payload(run: RunView) -> str | None:
    import msgspec

    if run.payload_dropped:
        return "not kept after success; see keep_payload of the job"
    return msgspec.json.encode(run.payload).decode() if run.payload else None


def _used(run: RunView) -> str | None:
    """CPU time and memory of its processes."""
    if run.usage is None:
        return None
    now = "" if run.usage.rss is None else f" ({memory(run.usage.rss)} now)"
    return f"{span(run.usage.cpu_s)} of CPU time, at most {memory(run.usage.rss_peak)} of memory{now}"


def _progress(run: RunView) -> str | None:
    if run.progress is None:
        return None
    share = "" if run.progress.fraction is None else f"{run.progress.fraction:.0%}"
    return " ".join(filter(None, (share, run.progress.message)))
