"""`mainspring job`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import JOB_HELP, call_for_job
from mainspring.cli.listing import UtcFlag
from mainspring.cli.screen import show_fields, show_json
from mainspring.cli.wording import Times, span

if TYPE_CHECKING:
    from mainspring.wire.jobs import JobView
    from mainspring.wire.limits import CircuitBreakerView, ConcurrencyView, RateLimitView
    from mainspring.wire.runs import RunView

EXAMPLES = ("mainspring job daily_report", "mainspring job daily_report --upcoming 10")


def command(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=completing.jobs)],
    fires: Annotated[
        int, typer.Option("--upcoming", metavar="N", min=0, help="How many future fire times to show.")
    ] = 3,
    utc: UtcFlag = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show a job: its definition, its next fire times and its latest run."""
    with connect(url, token_file, data) as client:
        job = call_for_job(client, job_id, client.job)
        if as_json:
            show_json(job)
            return
        latest = client.job_status(job.job_id).latest_run
        recurring = any(rule is not None for rule in (job.cron_expression, job.every, job.rrule))
        coming = client.upcoming(job.job_id, fires).fires if recurring and fires else []
    times = Times(datetime.now(UTC), utc)
    show_fields([
        *_definition(job, times),
        *(("upcoming" if index == 0 else "", times.full(fire)) for index, fire in enumerate(coming)),
        ("latest run", None if latest is None else _latest(latest, times)),
    ])  # fmt: skip


def _definition(job: JobView, times: Times) -> list[tuple[str, str | None]]:
    import msgspec

    command_line = job.command if isinstance(job.command, str | None) else " ".join(job.command)
    retry = job.retry
    return [
        ("job", job.job_id),
        ("name", job.name),
        ("status", job.status if job.pause_reason is None else f"{job.status}: {job.pause_reason}"),
        ("error", job.error_message if job.latest_run is None else None),  # the latest run shows its own
        ("task", job.task),
        ("command", command_line),
        ("payload", msgspec.json.encode(job.payload).decode() if job.payload else None),
        ("schedule", job.schedule),
        ("in words", job.schedule_in_words or None),
        ("next fire", times.full(job.next_fire_at) if job.next_fire_at is not None else None),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("timeout", span(job.timeout)),
        ("attempts", f"{retry.max_attempts}, {retry.backoff} from {span(retry.base)} to {span(retry.cap)}"),
        ("overlap", f"{job.overlap}, misfire {job.misfire.policy}, {job.delivery}"),
        ("concurrency", "; ".join(map(limit_in_words, job.concurrency)) or None),
        ("rate", "; ".join(map(rate_in_words, job.rate_limit)) or None),
        ("breaker", None if job.circuit_breaker is None else breaker_in_words(job.circuit_breaker)),
        ("labels", ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items())) or None),
        ("owner", job.owner),
        ("declared by", job.declared_by),
        ("description", job.description),
        ("created", f"{times.full(job.created_at)}, version {job.version}"),
    ]


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


def _latest(run: RunView, times: Times) -> str:
    when = times.brief(run.end_time or run.start_time or run.scheduled_for)
    note = run.error_message or run.reason
    return f"{run.status} {when}, attempt {run.attempt_number} (run {run.run_id})" + (f": {note}" if note else "")
