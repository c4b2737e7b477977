"""`mainspring jobs`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.wording import in_utc

if TYPE_CHECKING:
    from mainspring.cli.wording import Times
    from mainspring.sdk.client.client import Client
    from mainspring.wire.jobs import JobView

EXAMPLES = (
    "mainspring jobs --status failed",
    "mainspring jobs --label team=bi --queue heavy --json",
    "mainspring jobs --search report --watch",
)
_COLUMNS = (
    Column("JOB", least=12, ids=True),
    Column("NAME", rank=3, least=10),
    Column("TASK", rank=4, least=10),
    Column("SCHEDULE", rank=2, least=18),
    Column("STATUS"),
    Column("NEXT", rank=1),
    Column("QUEUE", rank=5, least=7),
)


@with_list_options
def command(
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
        page = client.jobs(
            status=status, latest_run=latest_run, label=wanted, queue=queue, owner=owner, declared_by=declared_by,
            q=search, limit=limit, cursor=cursor,
        )  # fmt: skip
        return Listing(
            page,
            _COLUMNS,
            lambda times: [_row(job, times) for job in page.jobs],
            "no jobs; to list what has run: mainspring runs" if page.next is None else "no jobs so far",
            more_pages(page.next, page.searched_to),
        )

    show_list(options, read)


def _row(job: JobView, times: Times) -> tuple[str, ...]:
    name = "" if job.name in (job.task, job.job_id) else job.name
    schedule = job.schedule if job.schedule_time is None else f"at {in_utc(job.schedule_time)}"
    return job.job_id, name, job.task, schedule, job.status, times.brief(job.next_fire_at), job.queue
