"""`mainspring dead-letters`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.choosing import (
    ErrorOption,
    JobOption,
    QueueOption,
    SinceOption,
    TaskOption,
    UntilOption,
    filters_of,
)
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import Column, say, show_json, show_rows
from mainspring.cli.wording import relative

if TYPE_CHECKING:
    from mainspring.wire.runs import DeadLetterView

EXAMPLES = ("mainspring dead-letters --task invoice.send --error timeout",)
_COLUMNS = (
    Column("RUN", whole=True),
    Column("JOB"),
    Column("TASK"),
    Column("QUEUE"),
    Column("TRIES", right=True),
    Column("DIED", whole=True),
    Column("ERROR"),
)


def command(
    job: JobOption = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    error: ErrorOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000)] = 20,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Continue after the previous page.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """List runs that failed after their last attempt and were neither replayed nor discarded, newest first."""
    with connect(url, token_file, data) as client:
        filters = filters_of(job, task, queue, error, since, until)
        page = client.dead_letters(limit=limit, cursor=cursor, **filters)
    if as_json:
        show_json(page)
        return
    now = datetime.now(UTC)
    show_rows(_COLUMNS, [_row(letter, now) for letter in page.dead_letters], nothing="no dead letters")
    if page.next is not None:
        say(f"more: repeat with --cursor {page.next}")


def _row(letter: DeadLetterView, now: datetime) -> tuple[str, ...]:
    return (
        letter.run_id,
        "" if letter.job_id == letter.run_id else letter.job_id,
        letter.task,
        letter.queue,
        str(letter.attempts),
        relative(letter.died_at, now),
        (letter.error_message or letter.reason or "").strip().partition("\n")[0],
    )
