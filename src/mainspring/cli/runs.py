"""`mainspring runs`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import Column, say, show_json, show_rows
from mainspring.cli.wording import relative, span

if TYPE_CHECKING:
    from mainspring.wire.runs import RunView

EXAMPLES = ("mainspring runs --status failed --error timeout", "mainspring runs --job daily_report --limit 5")
_COLUMNS = (
    Column("RUN", whole=True),
    Column("JOB"),
    Column("TASK"),
    Column("STATUS", whole=True),
    Column("TRY", right=True),
    Column("DUE", whole=True),
    Column("TOOK", right=True),
    Column("NOTE"),
)


def command(
    status: Annotated[
        str | None, typer.Option("--status", help="pending, running, success, failed, ...", show_default=False)
    ] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", show_default=False)] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="Q", show_default=False)] = None,
    task: Annotated[str | None, typer.Option("--task", show_default=False)] = None,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="Text that the error contains.", show_default=False)
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="T", show_default=False)] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="T", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000)] = 20,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Continue after the previous page.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """List runs, newest first."""
    with connect(url, token_file, data) as client:
        page = client.runs(
            status=status, job=job, queue=queue, task=task, error=error, since=since, until=until, limit=limit,
            cursor=cursor,
        )  # fmt: skip
    if as_json:
        show_json(page)
        return
    now = datetime.now(UTC)
    show_rows(_COLUMNS, [_row(run, now) for run in page.runs], nothing="no runs")
    if page.next is not None:
        say(f"more: repeat with --cursor {page.next}")


def _row(run: RunView, now: datetime) -> tuple[str, ...]:
    note = (run.error_message or run.reason or "").strip()
    return (
        run.run_id,
        "" if run.job_id == run.run_id else run.job_id,  # an immediate job and its run have the same id
        run.task,
        run.status,
        str(run.attempt_number),
        relative(run.scheduled_for, now),
        "" if run.duration is None else span(run.duration),
        note.partition("\n")[0],
    )
