"""`mainspring dead-letters`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.choosing import (
    ErrorOption,
    JobOption,
    QueueOption,
    SinceOption,
    TaskOption,
    UntilOption,
    filters_of,
)
from mainspring.cli.find_id import dead_letters_job
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from mainspring.cli.wording import Times
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import DeadLetterView

EXAMPLES = (
    "mainspring dead-letters",
    "mainspring dead-letters --task invoice.send --error timeout",
    "mainspring dead-letters --since 2026-11-01T00:00:00Z --utc",
)
_COLUMNS = (
    Column("RUN", ids=True),
    Column("JOB", rank=3, least=12, ids=True),
    Column("TASK", rank=2, least=10),
    Column("QUEUE", rank=5, least=7),
    Column("TRIES", rank=4, right=True),
    Column("DIED", rank=1),
    Column("ERROR", least=26),
)


@with_list_options
def command(
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


def _row(letter: DeadLetterView, times: Times) -> tuple[str, ...]:
    return (
        letter.run_id,
        "" if letter.job_id == letter.run_id else letter.job_id,
        letter.task,
        letter.queue,
        str(letter.attempts),
        times.brief(letter.died_at),
        error_line(letter.error_message or letter.reason or ""),
    )
