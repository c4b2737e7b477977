"""`mainspring workflow steps`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.find_id import call_with_id
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.wording import span
from mainspring.cli.workflow_showing import WorkflowRunArgument
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = (
    "mainspring workflow steps 6f0a8b11 --status failed",
    "mainspring workflow steps 6f0a8b11 --name resize --members --limit 5",
)
_COLUMNS = (
    Column("STEP", least=12),
    Column("MEMBER", rank=1, right=True),
    Column("STATUS"),
    Column("RUN", ids=True),
    Column("TRY", rank=4, right=True),
    Column("TOOK", rank=3, right=True),
    Column("NOTE", rank=2, least=18),
)


@with_list_options
def command(
    run: WorkflowRunArgument,
    name: Annotated[str | None, typer.Option("--name", help="Only this step.", show_default=False)] = None,
    members: Annotated[bool, typer.Option("--members", help="The members of the mapped step --name.")] = False,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="waiting, running, success, failed, ...",
            autocompletion=completing.words("waiting", "running", "success", "failed", "skipped", "cancelled"),
            show_default=False,
        ),
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List the steps of a workflow run, or the members of a mapped step."""

    def read(client: Client) -> Listing:
        page = call_with_id(
            client,
            run,
            lambda found: client.workflow_steps(
                found, status=status, name=name, members=members, limit=limit, cursor=cursor
            ),
            "run",
        )
        return Listing(
            page,
            _COLUMNS,
            lambda _times: [
                (
                    step.name,
                    "" if step.index is None else str(step.index),
                    step.status or "WAITING",
                    step.run_id or "",
                    str(step.attempt_number) if step.attempt_number else "",
                    "" if step.duration is None else span(step.duration),
                    error_line(step.error_message or step.reason or ""),
                )
                for step in page.steps
            ],
            "no steps",
            more_pages(page.next),
        )

    show_list(options, read)
