"""`mainspring job`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli import completing
from mainspring.cli.added_options import with_options
from mainspring.cli.cancel_output import show_cancelled_job
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.field_options import edit_options, field_values
from mainspring.cli.find_id import JobArgument, call_for_job
from mainspring.cli.job_editing import changed_job, edited_job
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
from mainspring.cli.noun import Noun
from mainspring.cli.pause_changes import pause_job, resume_job
from mainspring.cli.screen import say, show_fields, show_json, show_line
from mainspring.cli.table import WHOLE_ID, Column
from mainspring.cli.task_options import payload_of, task_options, task_values
from mainspring.cli.text_formats import TimeFormat, in_utc, span
from mainspring.cli.unknown_tasks import nothing_of
from mainspring.cli.wait_output import longest_wait, wait_and_show

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.jobs import JobView
    from mainspring.wire.limits import CircuitBreakerView, ConcurrencyView, RateLimitView
    from mainspring.wire.runs import RunView

noun = Noun("job", "Jobs: what runs, and when. `mainspring submit` adds one.", default="show")
_COLUMNS = (
    Column("JOB", least=WHOLE_ID, ids=True),
    Column("NAME", rank=3, least=10),
    Column("TASK", rank=4, least=10),
    Column("SCHEDULE", rank=2, least=18),
    Column("STATUS"),
    Column("HEALTH", rank=6),
    Column("NEXT", rank=1),
    Column("QUEUE", rank=5, least=7),
)


@noun.verb(
    "list",
    "mainspring job list --status failed",
    "mainspring job list --label team=bi --queue heavy --json",
    "mainspring job list --health failing,late",
    "mainspring job list --search report --watch",
)
@with_list_options
def list_(
    status: Annotated[
        str | None,
        completing.word_option("--status", "scheduled", "running", "paused", "completed", "failed", "cancelled"),
    ] = None,
    latest_run: Annotated[
        str | None,
        typer.Option(
            "--latest-run",
            help="Status of the latest run, e.g. failed.",
            autocompletion=completing.words("running", "success", "failed", "cancelled", "skipped"),
            show_default=False,
        ),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            "--health",
            help="healthy, late, failing, silent or never_ran.",
            autocompletion=completing.words("healthy", "late", "failing", "silent", "never_ran"),
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="K=V", help="Only jobs with this label.", show_default=False)
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="Q", help="Only this queue.", autocompletion=completing.queues, show_default=False
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Only jobs of this owner.", show_default=False)] = None,
    declared_by: Annotated[
        str | None,
        typer.Option(
            "--declared-by", metavar="APP", help="Schedules in the code of an application.", show_default=False
        ),
    ] = None,
    created_by: CreatedBy = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task", metavar="T", help="Only this task.", autocompletion=completing.tasks, show_default=False
        ),
    ] = None,
    schedule_type: Annotated[
        str | None,
        typer.Option(
            "--schedule-type",
            metavar="TYPE",
            help="Only schedules of this type, e.g. cron.",
            autocompletion=completing.words(
                "immediate", "future", "cron", "interval", "rrule", "after", "event", "manual"
            ),
            show_default=False,
        ),
    ] = None,
    search: Annotated[
        str | None, typer.Option("--search", "-q", help="Text that the name or id contains.", show_default=False)
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List jobs that will fire, or with --status those that have this status, also if they have run already."""
    wanted = label if label is None or ":" in label else label.replace("=", ":", 1)

    def read(client: Client) -> Listing:
        from mainspring.sdk.client import calls

        asked = calls.jobs(
            status=status, latest_run=latest_run, health=health, label=wanted, queue=queue, owner=owner,
            declared_by=declared_by, created_by=created_by, task=task, schedule_type=schedule_type, q=search,
            limit=limit, cursor=cursor,
        )  # fmt: skip
        page = search_list(client, options, asked)
        nothing = "no jobs; to list what has run: mainspring run list"
        return Listing(
            page,
            _COLUMNS,
            lambda times: [_row(job, times) for job in page.jobs],
            nothing if task is None or page.jobs else nothing_of(client, "jobs", task),
            more_pages(page.next),
        )

    show_list(options, read)


def _row(job: JobView, times: TimeFormat) -> tuple[str, ...]:
    name = "" if job.name in (job.task, job.job_id) else job.name
    schedule = job.schedule if job.schedule_time is None else f"at {in_utc(job.schedule_time)}"
    health = "" if job.health is None else job.health.state
    return job.job_id, name, job.task, schedule, job.status, health, times.brief(job.next_fire_at), job.queue


@noun.verb("show", "mainspring job show daily_report", "mainspring job show daily_report --upcoming 10")
def show(
    server: Server,
    job_id: JobArgument,
    fires: Annotated[
        int, typer.Option("--upcoming", metavar="N", min=0, help="How many future fire times to show.")
    ] = 3,
    utc: UtcFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a job: its definition, its next fire times and its latest run."""
    with server.connect() as client:
        job = call_for_job(client, job_id, client.job)
        if as_json:
            show_json(job)
            return
        latest = client.job_status(job.job_id).latest_run
        recurring = any(rule is not None for rule in (job.cron_expression, job.every, job.rrule))
        coming = client.upcoming(job.job_id, fires).fires if recurring and fires else []
    times = TimeFormat(datetime.now(UTC), utc)
    show_fields([
        *_definition(job, times),
        *(("upcoming" if index == 0 else "", times.full(fire)) for index, fire in enumerate(coming)),
        ("latest run", None if latest is None else _latest(latest, times)),
    ])  # fmt: skip


def _health(job: JobView, times: TimeFormat) -> str | None:
    if (health := job.health) is None:
        return None
    return f"{health.state} since {times.full(health.since)}" + ("" if health.reason is None else f": {health.reason}")


def _on_deadline(job: JobView) -> str:
    return "; then the run is cancelled" if job.on_deadline == "cancel" else ""


def _definition(job: JobView, times: TimeFormat) -> list[tuple[str, str | None]]:
    import msgspec

    command_line = job.command if isinstance(job.command, str | None) else " ".join(job.command)
    retry = job.retry
    return [
        ("job", job.job_id),
        ("name", job.name),
        ("status", job.status if job.pause_reason is None else f"{job.status}: {job.pause_reason}"),
        ("health", _health(job, times)),
        ("error", job.error_message if job.latest_run is None else None),  # the latest run shows its own
        ("task", job.task),
        ("command", command_line),
        ("payload", msgspec.json.encode(job.payload).decode() if job.payload else None),
        ("schedule", job.schedule),
        ("in words", job.schedule_in_words or None),
        ("next fire", times.full(job.next_fire_at) if job.next_fire_at is not None else None),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("timeout", span(job.timeout)),
        ("keeps logs", None if job.keep_logs is None else span(job.keep_logs)),
        ("late after", None if job.late_after is None else span(job.late_after)),
        ("expected", None if job.expected_duration is None else span(job.expected_duration)),
        ("deadline", None if job.deadline is None else span(job.deadline) + _on_deadline(job)),
        ("attempts", f"{retry.max_attempts}, {retry.backoff} from {span(retry.base)} to {span(retry.cap)}"),
        ("overlap", f"{job.overlap}, misfire {job.misfire.policy}, {job.delivery}"),
        ("concurrency", "; ".join(map(limit_in_words, job.concurrency)) or None),
        ("rate", "; ".join(map(rate_in_words, job.rate_limit)) or None),
        ("breaker", None if job.circuit_breaker is None else breaker_in_words(job.circuit_breaker)),
        ("labels", ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items())) or None),
        ("owner", job.owner),
        ("declared by", job.declared_by),
        ("created by", None if job.created_by is None else job.created_by.name),
        ("owned by", _owned_by(job)),
        ("description", job.description),
        ("created", f"{times.full(job.created_at)}, version {job.version}"),
    ]


def _owned_by(job: JobView) -> str | None:
    """Such as: job files of billing (jobs.yaml:12), changed since they were applied."""
    if job.owned_by is None:
        return None
    where = f" ({job.owned_by.source})" if job.owned_by.source else ""
    return f"job files of {job.owned_by.owner}{where}" + (
        ", changed since they were applied" if job.owned_by.changed_since else ""
    )


def limit_in_words(limit: ConcurrencyView) -> str:
    """Such as: 1 at once for each payload.account, in strict order."""
    words = f"{limit.limit} at once"
    if limit.key is not None:
        words += f" for each {limit.key}"
    if limit.per is not None:
        words += f", of the {limit.per}"
    return words + (", in strict order" if limit.order == "strict" else "")


def rate_in_words(rate: RateLimitView) -> str:
    """Such as: 100/m for each payload.account, burst 2."""
    words = rate.rate
    if rate.key is not None:
        words += f" for each {rate.key}"
    if rate.per is not None:
        words += f", of the {rate.per}"
    return f"{words}, burst {rate.burst}"


def breaker_in_words(breaker: CircuitBreakerView) -> str:
    of = "" if breaker.per is None else f" of the {breaker.per}"
    return f"open for {span(breaker.open_for)} after {breaker.failures} failures in a row{of}"


def _latest(run: RunView, times: TimeFormat) -> str:
    when = times.brief(run.end_time or run.start_time or run.scheduled_for)
    note = run.error_message or run.reason
    return f"{run.status} {when}, attempt {run.attempt_number} (run {run.run_id})" + (f": {note}" if note else "")


@noun.verb(
    "edit",
    "mainspring job edit daily_report --cron '0 8 * * *' --timezone Europe/Berlin",
    'mainspring job edit daily_report --payload \'{"region": "us"}\' --retries 5',
    "mainspring job edit daily_report --clear description --clear labels",
    "EDITOR=nano mainspring job edit daily_report",
)
@with_options([*task_options(), *edit_options()], after="as_json")
def edit(
    server: Server,
    job_id: JobArgument,
    task: Annotated[
        str | None, typer.Option("--task", help="Name of the task.", autocompletion=completing.tasks)
    ] = None,
    clear: Annotated[
        list[str] | None,
        typer.Option("--clear", metavar="FIELD", help="Set a field back to its default; can be repeated."),
    ] = None,
    as_json: JsonFlag = False,
    **options: Any,
) -> None:
    """Change a job. What no option names stays as it is: --cron, --every and --rrule replace only the rule of the
    schedule. Without options the job is opened in $EDITOR.

    Live runs go on as they are; the next fire is by the new definition.
    """
    fields = {"task": task, **task_values(options, []), **field_values(options)}
    changes = {name: value for name, value in fields.items() if value is not None} | dict.fromkeys(clear or ())
    with server.connect() as client:
        job = (
            call_for_job(client, job_id, lambda one: changed_job(client, one, changes))
            if changes
            else edited_job(client, job_id)
        )
    if job is None:
        say("nothing was changed")
    elif as_json:
        show_json(job)
    else:
        show_line(f"job {job.job_id} is changed, version {job.version}")


@noun.verb(
    "run",
    "mainspring job run daily_report --wait",
    "mainspring job run sync --payload '{\"day\": 1}' --idempotency-key day-1",
)
def run(
    server: Server,
    job_id: JobArgument,
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="JSON", help="Use this payload instead of the job's.", show_default=False),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key", metavar="K", help="A repeated command with this key starts no second run of the job."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run ends. Exit with 0 only on SUCCESS.")] = False,
    timeout_wait: Annotated[
        str | None, typer.Option("--timeout-wait", metavar="D", help="Longest time to wait, such as 30s.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a job once now, in addition to its schedule. Also works for a paused job and for a one-time job that has
    fired, which is repeated. Prints the run's id."""
    longest = longest_wait(timeout_wait, wait=wait)
    with server.connect() as client:
        changed = payload_of(payload, [])
        accepted = call_for_job(
            client, job_id, lambda found: client.run_now(found, changed, idempotency_key=idempotency_key)
        )
        if wait:
            if not as_json:
                say(f"run {accepted.run_id}")
            handle = client.handle(accepted.job_id, accepted.run_id)
            raise typer.Exit(wait_and_show(client, handle, timeout=longest, as_json=as_json))
    if as_json:
        show_json(accepted)
    else:
        show_line(accepted.run_id)
        if accepted.status == "SKIPPED":
            say(f"SKIPPED: {accepted.reason}")
        elif accepted.does_not_wait_for:
            say(f"it does not wait for {', '.join(accepted.does_not_wait_for)}, because it was started by hand")


@noun.verb("pause", "mainspring job pause daily_report")
def pause(server: Server, job_id: JobArgument, as_json: JsonFlag = False) -> None:
    """Stop firing a job until `mainspring job resume`. Runs that have started continue."""
    with server.connect() as client:
        pause_job(client, job_id, as_json=as_json)


@noun.verb("resume", "mainspring job resume daily_report")
def resume(server: Server, job_id: JobArgument, as_json: JsonFlag = False) -> None:
    """Let a paused job fire again. Prints its next fire time."""
    with server.connect() as client:
        resume_job(client, job_id, as_json=as_json)


@noun.verb("cancel", "mainspring job cancel daily_report")
def cancel(server: Server, job_id: JobArgument, as_json: JsonFlag = False) -> None:
    """Cancel a job with its live runs and all its future fires."""
    with server.connect() as client:
        show_cancelled_job(client, call_for_job(client, job_id, client.cancel_job), as_json=as_json)
