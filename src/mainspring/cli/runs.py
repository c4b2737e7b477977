"""`mainspring runs`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.find_id import job_filter
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.wording import span
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from mainspring.cli.wording import Times
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import RunView

EXAMPLES = (
    "mainspring runs --watch",
    "mainspring runs --status failed --error timeout",
    "mainspring runs --job daily_report --limit 5 --utc",
)
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


@with_list_options
def command(
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
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="T", help="Only those due at or after T: 2026-11-01T00:00:00Z.", show_default=False
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="T", help="Only those due before T.", show_default=False)
    ] = None,
    limit: PageLimit = 20,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List runs, newest first."""

    def read(client: Client) -> Listing:
        found = job_filter(client, job)
        page = client.runs(
            status=status, job=found, queue=queue, task=task, error=error, since=since, until=until,
            limit=limit, cursor=cursor,
        )  # fmt: skip
        rows = page.runs
        if found is not None and not rows:
            client.job(found)  # it has no such runs, or there is no such job
        return Listing(
            page,
            _COLUMNS,
            lambda times: [_row(run, times) for run in rows],
            "no runs" if page.next is None else "no runs so far",
            more_pages(page.next, page.searched_to),
        )

    show_list(options, read)


def _row(run: RunView, times: Times) -> tuple[str, ...]:
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
