"""`mainspring logs`: the output of all runs that match, or of one run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.exit_codes import FAILURE
from mainspring.cli.find_id import job_filter
from mainspring.cli.nouns import run as run_noun
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.text_formats import TimeFormat

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.core import Call
    from mainspring.wire.logs import LogHit, LogHits

EXAMPLES = (
    "mainspring logs --search 'connection refused' --task billing.charge --since 2d",
    "mainspring logs --regex 'code=5[0-9]{2}' --status failed",
    "mainspring logs 6f0a8b11 -f",
)
_TELL_EVERY = 2.0


def command(
    server: Server,
    run_or_job: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="Show the output of this run, as `mainspring run logs` does, instead of searching.",
            autocompletion=completing.runs_and_jobs,
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="TEXT", help="Words of a line, in upper or lower case.", show_default=False),
    ] = None,
    regex: Annotated[
        str | None,
        typer.Option("--regex", metavar="RE", help="A regular expression of RE2 instead.", show_default=False),
    ] = None,
    inside_words: Annotated[
        bool, typer.Option("--inside-words", help="Find the text inside words too, which takes longer.")
    ] = False,
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="ID", help="Only this job.", autocompletion=completing.jobs, show_default=False),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Only this task.", autocompletion=completing.tasks, show_default=False)
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="Only this queue.", autocompletion=completing.queues, show_default=False),
    ] = None,
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="ID", help="Only this worker.", show_default=False)
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME=VALUE", help="Only runs with it.", show_default=False)
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="Only runs with it: failed, success, ...", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="T", help="Output from then on: 2d, or a time.", show_default=False),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="T", help="Output before: 1h, or a time.", show_default=False)
    ] = None,
    lines: Annotated[int, typer.Option("--lines", metavar="N", min=1, max=100, help="Lines of each log.")] = 5,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many logs.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="With RUN: follow it to the end.")] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="With RUN: this attempt.", show_default=False)
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", metavar="N", min=1, help="With RUN: the last N lines.", show_default=False)
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="TEXT", help="With RUN: lines that contain the text.", show_default=False),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="With RUN: control characters reach the terminal.")] = False,
    utc: Annotated[bool, typer.Option("--utc", help="Absolute times in UTC.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Search the output of all runs, the newest first, or show that of one run. It goes on until it has looked at all
    of them or has found enough. Exit with 1 if it finds nothing."""
    if search is None and regex is None:
        if run_or_job is None:
            raise typer.BadParameter("give a text to search for, or a run", param_hint="--search")
        run_noun.logs(server, run_or_job, follow, attempt, tail, grep, raw, as_json)
        return
    if run_or_job is not None:
        raise typer.BadParameter("use `mainspring run logs RUN --grep TEXT`, or --job", param_hint="RUN")
    with server.connect() as client:
        from mainspring.sdk.client import calls

        asked = calls.search_logs(
            search, regex=regex, inside_words=inside_words, job=job_filter(client, job), task=task, queue=queue,
            worker=worker, label=label, status=status, since=_time(since, "since"), until=_time(until, "until"),
            lines=lines, limit=min(limit, 100),
        )  # fmt: skip
        words = search is not None and not inside_words
        raise typer.Exit(_search(client, asked, limit, words=words, utc=utc, as_json=as_json))


def _search(client: Client, asked: Call[LogHits], limit: int, *, words: bool, utc: bool, as_json: bool) -> int:
    hits: list[LogHit] = []
    left, told = limit, monotonic()
    for page in client.pages(asked):
        for hit in page.hits[:left]:
            if as_json:
                hits.append(hit)
            else:
                _show(hit, TimeFormat(datetime.now(UTC), utc))
        left -= min(left, len(page.hits))
        if not left:
            if page.next is not None or len(page.hits) > left:
                say(f"there may be more than {limit}; see --limit and --since")
            break
        if page.searched_to is not None and monotonic() - told >= _TELL_EVERY:
            told = monotonic()
            say(f"looked back to {page.searched_to.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC; looking on")
    if as_json:
        show_json({"hits": hits})
    elif left == limit:
        say("no line has these words" + ("; --inside-words finds them inside other words" if words else ""))
    return 0 if left < limit else FAILURE


def _show(hit: LogHit, times: TimeFormat) -> None:
    attempt = f", attempt {hit.attempt}" if hit.attempt > 1 else ""
    show_line(f"{hit.run_id} {hit.task} {hit.status}{attempt}, {times.brief(hit.printed_at)}")
    for line in hit.lines:
        show_line(f"    {line.text}")
    if hit.more:
        show_line(f"    ... more: mainspring run logs {hit.run_id} --attempt {hit.attempt} --grep TEXT")


def _time(text: str | None, field: str) -> datetime | str | None:
    """A time, or how long ago."""
    from mainspring.domain.durations import parse_duration
    from mainspring.domain.errors import InvalidInput

    if text is None:
        return None
    try:
        ago = parse_duration(text, field)
    except InvalidInput:
        return text
    return datetime.now(UTC) - timedelta(seconds=ago)
