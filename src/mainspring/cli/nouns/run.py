"""`mainspring run`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli import completing
from mainspring.cli.cancel_output import show_cancelled_run
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.find_id import call_for_job, find_id, job_filter
from mainspring.cli.listing import (
    CreatedBy,
    Listing,
    ListOptions,
    PageCursor,
    PageLimit,
    UtcFlag,
    more_pages,
    search_list,
    show_list,
    with_list_options,
)
from mainspring.cli.log_output import follow_log, show_matches
from mainspring.cli.log_parts import MissingOutput, last_lines
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_fields, show_json, show_line, show_output
from mainspring.cli.table import Column
from mainspring.cli.task_options import payload_of
from mainspring.cli.text_formats import TimeFormat, memory, span
from mainspring.cli.unknown_tasks import nothing_of
from mainspring.cli.wait_output import brief, wait_and_show
from mainspring.cli.which_run import RunOrJob, call_for_run, find_run_id
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.jobs import JobView
    from mainspring.wire.runs import RunView, TimelineEntry

noun = Noun("run", "Runs: one for each time that a job fires. A job stands for its latest run.", default="show")
_NONE_WITH_A_VALUE = "no runs; only values that the job or its task names in `search` are found"
_COLUMNS = (
    Column("RUN", ids=True),
    Column("JOB", rank=2, least=12, ids=True),
    Column("TASK", rank=3, least=10),
    Column("STATUS"),
    Column("TRY", rank=6, right=True),
    Column("DUE", rank=1),
    Column("TOOK", rank=5, right=True),
    Column("NOTE", rank=4, least=18, ids=True),
)
_RECURRING = ("CRON", "INTERVAL", "RRULE")
_TIMELINE_COLUMNS = (
    Column("AT", rank=1),
    Column("AFTER", rank=4, right=True),
    Column("STATE"),
    Column("TRY", rank=5, right=True),
    Column("WHERE", rank=3, least=10, ids=True),
    Column("TOOK", rank=4, right=True),
    Column("NOTE", rank=2, least=24, ids=True),
)


@noun.verb(
    "list",
    "mainspring run list --watch",
    "mainspring run list --status failed --error timeout",
    "mainspring run list --job daily_report --limit 5 --utc",
)
@with_list_options
def list_(
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="pending, running, success, failed, ...",
            autocompletion=completing.words(
                "pending", "scheduled", "queued", "running", "success", "failed", "cancelled", "skipped"
            ),
            show_default=False,
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="ID",
            help="Only this job. The end or the beginning of its id is enough.",
            autocompletion=completing.jobs,
            show_default=False,
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="Q", help="Only this queue.", autocompletion=completing.queues, show_default=False
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Only this task.", autocompletion=completing.tasks, show_default=False)
    ] = None,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="Text that the error contains.", show_default=False)
    ] = None,
    payload: Annotated[
        list[str] | None,
        typer.Option(
            "--payload",
            metavar="KEY=VALUE",
            help="A value of the payload, by a key that the job or its task declares with search; can be repeated.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="T", help="Only those due at or after T: 2026-11-01T00:00:00Z.", show_default=False
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="T", help="Only those due before T.", show_default=False)
    ] = None,
    created_by: CreatedBy = None,
    limit: PageLimit = 20,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List runs, newest first."""

    def read(client: Client) -> Listing:
        from mainspring.sdk.client import calls

        found = job_filter(client, job)
        asked = calls.runs(
            status=status, job=found, queue=queue, task=task, error=error, since=since, until=until,
            created_by=created_by, limit=limit, cursor=cursor, payload=_payload_keys(payload or []),
        )  # fmt: skip
        page = search_list(client, options, asked)
        rows = page.runs
        nothing = _NONE_WITH_A_VALUE if payload else "no runs"
        if found is not None and not rows:
            known = client.job(found)  # it has no such runs, or there is no such job
            if known.latest_run is None and known.next_fire_at is not None:
                nothing = f"no runs yet; the first one is due {TimeFormat(datetime.now(UTC)).full(known.next_fire_at)}"
        elif task is not None and not rows:
            nothing = nothing_of(client, "runs", task)
        return Listing(
            page,
            _COLUMNS,
            lambda times: [_row(run, times) for run in rows],
            nothing,
            more_pages(page.next),
        )

    show_list(options, read)


def _row(run: RunView, times: TimeFormat) -> tuple[str, ...]:
    note = (run.error_message or run.reason or "").strip()
    return (
        run.run_id,
        "" if run.job_id == run.run_id else run.job_id,  # an immediate job and its run have the same id
        run.task,
        run.status,
        str(run.attempt_number),
        times.brief(run.scheduled_for),
        "" if run.duration is None else span(run.duration),
        error_line(note),
    )


def _payload_keys(given: list[str]) -> dict[str, str]:
    from mainspring.domain.errors import InvalidInput

    keys = {}
    for text in given:
        path, found, value = text.partition("=")
        if not found or not path:
            raise InvalidInput(f"{text!r} is not a key and a value", field="payload", expected="such as account=42")
        keys[path] = value
    return keys


@noun.verb("show", "mainspring run show 6f0a8b11 --watch")
def show(
    server: Server,
    run_or_job: RunOrJob,
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait until the run ends. Exit with 0 only on SUCCESS.")
    ] = False,
    utc: UtcFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a run: its status, times, error and result."""
    with server.connect() as client:
        run = call_for_run(client, run_or_job, client.run)
        if watch:
            handle = client.handle(run.job_id, run.run_id)
            raise typer.Exit(wait_and_show(client, handle, timeout=None, as_json=as_json))
    if as_json:
        show_json(run)
    else:
        show_fields(_fields(run, TimeFormat(datetime.now(UTC), utc)))


def _fields(run: RunView, times: TimeFormat) -> list[tuple[str, str | None]]:
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


@noun.verb(
    "logs",
    "mainspring run logs 6f0a8b11 -f",
    "mainspring run logs 6f0a8b11 --tail 100",
    "mainspring run logs daily_report --grep timeout",
    "mainspring run logs daily_report --attempt 1",
)
def logs(
    server: Server,
    run_or_job: RunOrJob,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow the log until the run ends, including retries. Exit with 0 only on SUCCESS."
        ),
    ] = False,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", metavar="N", min=1, help="Show only this attempt.", show_default="the newest"),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option("--tail", metavar="N", min=1, help="Show only the last N lines. With --follow, begin there."),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep",
            metavar="TEXT",
            help="Show only lines that contain this text, in upper or lower case. Exit with 1 if there are none.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Let control characters of the output reach your terminal, such as colours. Only for output that you "
            "trust. A pipe or a file always gets the exact output.",
            show_default=False,
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the output of a run: stdout, stderr and what its task logged. --json -f prints one JSON object per line.
    Exit with 1 if bytes of it are missing from the log store."""
    if grep is not None and follow:
        raise typer.BadParameter("lines that arrive cannot be filtered; leave out --follow", param_hint="--grep")
    with server.connect() as client:
        run_id = find_run_id(client, run_or_job)
        if grep is not None:
            raise typer.Exit(show_matches(client, run_id, attempt, grep, tail, as_json=as_json, raw=raw))
        last = None if tail is None else last_lines(client, run_id, attempt, tail)
        if follow:
            raise typer.Exit(follow_log(client, run_id, attempt, last, as_json=as_json, raw=raw))
        text = client.logs(run_id, attempt) if last is None else last.text
    missing = MissingOutput()
    missing.see(text)
    if as_json:
        show_json({"run_id": run_id, "attempt": attempt, "text": text})
    else:
        show_output(text, raw=raw)
        if last is not None and last.truncated:
            say("the output was truncated here")
    raise typer.Exit(missing.exit_code())


@noun.verb("why", "mainspring run why 6f0a8b11", "mainspring run why daily_report --at 2026-11-17T03:00")
def why(
    server: Server,
    run_or_job: RunOrJob,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="T",
            help="Why a job did or did not run at this time. Without a zone: by the clocks of its schedule.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Explain in a sentence why a run is not running, or why a job did not run: at its last fire, or at a time."""
    with server.connect() as client:
        answer: Any = None
        if at is not None:
            answer = call_for_job(client, run_or_job, lambda job_id: client.why_job(job_id, at))
        elif (job := _idle_job(client, run_or_job)) is not None:
            answer = _why_paused(job) or (client.why_job(job.job_id) if job.schedule_type in _RECURRING else None)
        if answer is None:
            answer = call_for_run(client, run_or_job, client.why)
    if as_json:
        show_json(answer)
    else:
        show_line(f"{_state(answer)}: {answer['why'] if isinstance(answer, dict) else answer.why}")


def _state(answer: Any) -> str:
    if isinstance(answer, dict):
        return str(answer["status"])
    return str(getattr(answer, "run_status", None) or getattr(answer, "reason", "").upper() or answer.status)


def _idle_job(client: Client, text: str) -> JobView | None:
    """The job whose id is `text`, or contains it. None if it is a run, or if a run of the job is alive."""
    from mainspring.domain.errors import NotFound
    from mainspring.kernel.ids import parse_uuid

    try:
        job = client.job(text)
    except NotFound:
        match = None if parse_uuid(text) is not None else find_id(client, text, "run", "job")
        if match is None or match.kind != "job":
            return None
        job = client.job(match.id)
    if job.status != "PAUSED" and job.schedule_type not in _RECURRING:
        return None
    latest = client.job_status(job.job_id).latest_run
    return None if latest is not None and latest.end_time is None else job


def _why_paused(job: JobView) -> dict[str, str] | None:
    """Why a job is paused. None if it is not."""
    if job.status != "PAUSED":
        return None
    resume = f"mainspring job resume {job.job_id}"
    if job.pause_reason is None:
        why = f"the job is paused; go on with: {resume}"
    else:
        code = f" by the code of {job.declared_by}" if job.declared_by else ""
        why = f"{job.pause_reason}{code}; declare it again, or keep it with: {resume}"
    return {"job_id": job.job_id, "status": job.status, "why": why}


@noun.verb("timeline", "mainspring run timeline 6f0a8b11", "mainspring run timeline daily_report --utc")
@with_list_options
def timeline(
    run_or_job: RunOrJob,
    options: ListOptions,
) -> None:
    """Show the history of a run: each state with its time, attempt, worker or node, and reason."""

    def read(client: Client) -> Listing:
        entries = call_for_run(client, run_or_job, client.timeline)
        return Listing(
            entries,
            _TIMELINE_COLUMNS,
            lambda times: [_timeline_row(entry, entries[0], times) for entry in entries],
            nothing="no entries",
        )

    show_list(options, read)


def _timeline_row(entry: TimelineEntry, first: TimelineEntry, times: TimeFormat) -> tuple[str, ...]:
    notes = list(dict.fromkeys([entry.reason, error_line(entry.error or "")]))
    return (
        times.brief(entry.at),
        f"+{span(max(0.0, (entry.at - first.at).total_seconds()))}",
        entry.state,
        "" if entry.attempt is None else str(entry.attempt),
        _where(entry),
        "" if entry.duration is None else span(entry.duration),
        ": ".join(note for note in notes if note),
    )


def _where(entry: TimelineEntry) -> str:
    if entry.node_id is not None:
        return f"node {entry.node_id}"
    return entry.worker_name or entry.worker_id or ""


@noun.verb("retry", "mainspring run retry 6f0a8b11", "mainspring run retry daily_report")
def retry(
    server: Server,
    run_or_job: RunOrJob,
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload", metavar="JSON", help="Use this payload instead of the stored one.", show_default=False
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Repeat an ended run as a new run with the same scheduled time. Prints the new run's id."""
    with server.connect() as client:
        changed = payload_of(payload, [])
        run = call_for_run(client, run_or_job, lambda run_id: client.retry_run(run_id, changed))
    if as_json:
        show_json(run)
    else:
        show_line(run.run_id)


@noun.verb("cancel", "mainspring run cancel 6f0a8b11", "mainspring run cancel daily_report")
def cancel(server: Server, run_or_job: RunOrJob, as_json: JsonFlag = False) -> None:
    """Cancel a run. It ends when its processes have ended; a run that waits ends at once."""
    with server.connect() as client:
        show_cancelled_run(call_for_run(client, run_or_job, client.cancel_run), as_json=as_json)
