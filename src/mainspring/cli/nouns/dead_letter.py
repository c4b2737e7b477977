"""`mainspring dead-letter`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.dead_letter_filters import (
    AllFlag,
    ErrorOption,
    JobOption,
    QueueOption,
    RunsArgument,
    SinceOption,
    TaskOption,
    UntilOption,
    check_choice,
    filters_of,
)
from mainspring.cli.find_id import dead_letter_ids, dead_letters_job
from mainspring.cli.listing import (
    Listing,
    ListOptions,
    PageCursor,
    PageLimit,
    UtcFlag,
    more_pages,
    show_list,
    with_list_options,
)
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_fields, show_json, show_line
from mainspring.cli.table import Column
from mainspring.cli.task_options import payload_of
from mainspring.cli.text_formats import TimeFormat
from mainspring.cli.which_run import RunOrJob, call_for_run
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import AttemptView, DeadLetterView, Discarded, Replayed

noun = Noun("dead-letter", "Dead letters: runs that failed after their last attempt.", default="show")
_NONE_MATCHES = "no dead letter matches; see `mainspring dead-letter list`"
_COLUMNS = (
    Column("RUN", ids=True),
    Column("JOB", rank=3, least=12, ids=True),
    Column("TASK", rank=2, least=10),
    Column("QUEUE", rank=5, least=7),
    Column("TRIES", rank=4, right=True),
    Column("DIED", rank=1),
    Column("ERROR", least=26),
)


@noun.verb(
    "list",
    "mainspring dead-letter list",
    "mainspring dead-letter list --task invoice.send --error timeout",
    "mainspring dead-letter list --since 2026-11-01T00:00:00Z --utc",
)
@with_list_options
def list_(
    job: JobOption = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    error: ErrorOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: PageLimit = 20,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List runs that failed after their last attempt and were neither replayed nor discarded, newest first."""

    def read(client: Client) -> Listing:
        found = dead_letters_job(client, job)
        filters = filters_of(found, task, queue, error, since, until)
        page = client.dead_letters(limit=limit, cursor=cursor, **filters)
        letters = page.dead_letters
        if found is not None and not letters:
            client.job(found)  # it has no such dead letters, or there is no such job
        return Listing(
            page,
            _COLUMNS,
            lambda times: [_row(letter, times) for letter in letters],
            "no dead letters",
            more_pages(page.next),
        )

    show_list(options, read)


def _row(letter: DeadLetterView, times: TimeFormat) -> tuple[str, ...]:
    return (
        letter.run_id,
        "" if letter.job_id == letter.run_id else letter.job_id,
        letter.task,
        letter.queue,
        str(letter.attempts),
        times.brief(letter.died_at),
        error_line(letter.error_message or letter.reason or ""),
    )


@noun.verb("show", "mainspring dead-letter show 6f0a8b11")
def show(
    server: Server,
    run_or_job: RunOrJob,
    utc: UtcFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a dead letter: its payload, and the error of each attempt."""
    with server.connect() as client:
        letter = call_for_run(client, run_or_job, client.dead_letter, kind="dead_letter")
    if as_json:
        show_json(letter)
    else:
        show_fields(_fields(letter, TimeFormat(datetime.now(UTC), utc)))


def _fields(letter: DeadLetterView, times: TimeFormat) -> list[tuple[str, str | None]]:
    import msgspec

    fields: list[tuple[str, str | None]] = [
        ("run", letter.run_id),
        ("job", letter.job_id),
        ("name", letter.name),
        ("task", f"{letter.task}, queue {letter.queue}"),
        ("due", times.full(letter.scheduled_for)),
        ("died", times.full(letter.died_at)),
        ("reason", letter.reason),
        ("replay of", letter.replay_of),
        ("payload", msgspec.json.encode(letter.payload).decode() if letter.payload else None),
    ]
    if letter.tries:
        return fields + [(f"try {one.attempt}", _words(one, times)) for one in letter.tries]
    return [*fields, ("last error", letter.error_message)]


def _words(one: AttemptView, times: TimeFormat) -> str:
    where = one.worker_name or one.worker_id or "no worker"
    return f"{one.outcome} {times.full(one.ended_at)} on {where}" + (f"\n{one.error.rstrip()}" if one.error else "")


@noun.verb(
    "replay",
    "mainspring dead-letter replay 6f0a8b11",
    "mainspring dead-letter replay --task invoice.send --error timeout",
    'mainspring dead-letter replay 6f0a8b11 --payload \'{"region": "eu"}\'',
)
def replay(
    server: Server,
    run_ids: RunsArgument = None,
    job: JobOption = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    error: ErrorOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: AllFlag = False,
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload", metavar="JSON", help="Use this payload instead of the stored one.", show_default=False
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run dead letters, or ended runs by their ids, again as new runs with the same scheduled time. Prints the ids of
    the new runs."""
    filters = filters_of(job, task, queue, error, since, until)
    check_choice(run_ids, filters, everything=everything)
    changed = payload_of(payload, [])
    with server.connect() as client:
        filters["job"] = dead_letters_job(client, job)
        done = (
            _by_id(client, run_ids, changed)
            if run_ids
            else client.replay_dead_letters(changed, all=everything, **filters)
        )
    if as_json:
        show_json(done)
        return
    for run_id in done.run_ids:
        show_line(run_id)
    say(f"{done.replayed} replayed" + ("; there are more, repeat the command" if done.more else ""))
    for reason, count in done.left.items():
        say(f"{count} not replayed: {reason}")
    if not done.replayed and not done.left:
        say(_NONE_MATCHES)


def _by_id(client: Client, run_ids: list[str], payload: dict[str, Any] | None) -> Replayed:
    from mainspring.domain.errors import MainspringError
    from mainspring.wire.runs import Replayed

    new: list[str] = []
    try:
        for run_id in dead_letter_ids(client, run_ids, or_runs=True):
            new.append(client.retry_run(run_id, payload).run_id)  # noqa: PERF401 - the list survives an error
    except MainspringError:
        if new:  # the error concerns the next id; these runs exist already
            say(f"{len(new)} replayed before the error: {', '.join(new)}")
        raise
    return Replayed(len(new), new)


@noun.verb(
    "discard",
    "mainspring dead-letter discard 6f0a8b11 2f1f0a8b",
    "mainspring dead-letter discard --job daily_report --until 2026-11-01T00:00:00Z",
)
def discard(
    server: Server,
    run_ids: RunsArgument = None,
    job: JobOption = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    error: ErrorOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: AllFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Discard dead letters. Their runs stay in the history. `mainspring run retry` can still run them again."""
    filters = filters_of(job, task, queue, error, since, until)
    check_choice(run_ids, filters, everything=everything)
    with server.connect() as client:
        filters["job"] = dead_letters_job(client, job)
        done = _discard_by_id(client, run_ids) if run_ids else client.discard_dead_letters(all=everything, **filters)
    if as_json:
        show_json(done)
    else:
        show_line(f"{done.discarded} discarded" + ("; there are more, repeat the command" if done.more else ""))
        if not done.discarded:
            say(_NONE_MATCHES)


def _discard_by_id(client: Client, run_ids: list[str]) -> Discarded:
    from mainspring.wire.runs import Discarded

    return Discarded(sum(client.discard(run_id).discarded for run_id in dead_letter_ids(client, run_ids)))
