"""`mainspring workflow runs`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.find_id import call_for_job
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.wording import span
from mainspring.cli.workflow_showing import WorkflowArgument
from mainspring.cli.workflow_tree import counts_in_words
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring workflow runs nightly", "mainspring workflow runs nightly --status failed --limit 5")
_COLUMNS = (
    Column("RUN", ids=True),
    Column("STATUS"),
    Column("DUE", rank=1),
    Column("TOOK", rank=3, right=True),
    Column("STEPS", rank=2, least=14),
    Column("NOTE", rank=4, least=18),
)


@with_list_options
def command(
    workflow: WorkflowArgument,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="pending, running, success, failed, ...",
            autocompletion=completing.words("pending", "waiting", "running", "success", "failed", "cancelled"),
            show_default=False,
        ),
    ] = None,
    limit: PageLimit = 20,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List the runs of a workflow, newest first."""

    def read(client: Client) -> Listing:
        page = call_for_job(
            client, workflow, lambda found: client.workflow_runs(found, status=status, limit=limit, cursor=cursor)
        )
        return Listing(
            page,
            _COLUMNS,
            lambda times: [
                (
                    run.run_id,
                    run.status,
                    times.brief(run.scheduled_for),
                    "" if run.duration is None else span(run.duration),
                    counts_in_words(run.counts, run.step_count),
                    error_line(run.reason or ""),
                )
                for run in page.runs
            ],
            "no runs",
            more_pages(page.next),
        )

    show_list(options, read)
