"""`mainspring backfill`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.backfill_output import BACKFILL_HELP, backfill_id, done, show_backfill, watch_backfill
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.find_id import JobArgument, call_for_job, job_filter
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.table import Column
from mainspring.cli.text_formats import in_utc

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

noun = Noun("backfill", "Backfills: they make up for fires of the past.", default="create")
_COLUMNS = (
    Column("BACKFILL", least=8, ids=True),
    Column("JOB", least=8),
    Column("STATE"),
    Column("DONE", right=True),
    Column("FAILED", rank=1, right=True),
    Column("RUNNING", rank=2, right=True),
    Column("FROM", rank=3),
    Column("TO", rank=3),
    Column("REASON", rank=4, least=10),
)


@noun.verb(
    "create",
    "mainspring backfill sync --from 2025-01-01T00:00Z --to 2025-02-01T00:00Z",
    "mainspring backfill create sync --from $FROM --to $TO --order newest --watch",
)
def create(
    server: Server,
    job_id: JobArgument,
    start: Annotated[str, typer.Option("--from", metavar="T", help="The first time of the range, RFC 3339.")],
    end: Annotated[str, typer.Option("--to", metavar="T", help="The end of the range. Its own fire is left out.")],
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, max=1000, help="How many runs are alive at once.")
    ] = 1,
    order: Annotated[
        str,
        typer.Option(
            "--order", help="Which fires come first: oldest or newest.",
            autocompletion=completing.words("oldest", "newest"),
        ),
    ] = "oldest",
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show the progress until the end. Exit with 0 only if no run failed."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Make up for fires of the past: each fire of the job's schedule in the range becomes a run, unless it has one
    already. Prints the id of the backfill."""
    with server.connect() as client:
        view = call_for_job(
            client,
            job_id,
            lambda found: client.create_backfill(found, start, end, concurrency=concurrency, order=order),
        )
        if watch:
            if not as_json:
                say(f"backfill {view.id} of {view.total} fires")
            raise typer.Exit(watch_backfill(client, view.id, as_json=as_json))
    if as_json:
        show_json(view)
    else:
        show_line(view.id)
        say(f"{view.total} fires; to see the progress: mainspring backfill show {view.id} --watch")


@noun.verb("list", "mainspring backfill list --job daily_report", "mainspring backfill list --state running --watch")
@with_list_options
def list_(
    job: Annotated[
        str | None,
        typer.Option(
            "--job", metavar="JOB", help="Only those of this job.", autocompletion=completing.jobs, show_default=False
        ),
    ] = None,
    state: Annotated[
        str | None, completing.word_option("--state", "running", "paused", "cancelled", "completed")
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List backfills with their progress, newest first."""

    def read(client: Client) -> Listing:
        page = client.backfills(job=job_filter(client, job), state=state, limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda _times: [
                (
                    view.id,
                    view.job_id,
                    view.state,
                    f"{done(view)} of {view.total}",
                    str(view.failed),
                    str(view.running),
                    in_utc(view.from_),
                    in_utc(view.to),
                    view.reason or "",
                )
                for view in page.backfills
            ],
            "no backfills; to make up for fires of the past: mainspring backfill create JOB --from T --to T",
            more_pages(page.next),
        )

    show_list(options, read)


@noun.verb("show", "mainspring backfill show 6f0a8b11", "mainspring backfill show 6f0a8b11 --watch")
def show(
    server: Server,
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show the progress until the end. Exit with 0 only if no run failed."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a backfill and its progress."""
    with server.connect() as client:
        found = backfill_id(client, backfill)
        if watch:
            raise typer.Exit(watch_backfill(client, found, as_json=as_json))
        show_backfill(client.read_backfill(found), as_json=as_json)


@noun.verb("set", "mainspring backfill set 6f0a8b11 --concurrency 8")
def set_(
    server: Server,
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, max=1000, help="How many runs are alive at once.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Change how many runs of a backfill are alive at once."""
    with server.connect() as client:
        show_backfill(client.change_backfill(backfill_id(client, backfill), concurrency), as_json=as_json)


@noun.verb("pause", "mainspring backfill pause 6f0a8b11")
def pause(
    server: Server,
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    as_json: JsonFlag = False,
) -> None:
    """Let a backfill create no more runs. Those that exist continue."""
    with server.connect() as client:
        show_backfill(client.pause_backfill(backfill_id(client, backfill)), as_json=as_json)


@noun.verb("resume", "mainspring backfill resume 6f0a8b11")
def resume(
    server: Server,
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    as_json: JsonFlag = False,
) -> None:
    """Let a paused backfill continue."""
    with server.connect() as client:
        show_backfill(client.resume_backfill(backfill_id(client, backfill)), as_json=as_json)


@noun.verb("cancel", "mainspring backfill cancel 6f0a8b11", "mainspring backfill cancel 6f0a8b11 --running")
def cancel(
    server: Server,
    backfill: Annotated[str, typer.Argument(metavar="BACKFILL", help=BACKFILL_HELP)],
    running: Annotated[bool, typer.Option("--running", help="Stop also the runs that a worker has.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """End a backfill, and those of its runs that no worker has taken."""
    with server.connect() as client:
        view = client.cancel_backfill(backfill_id(client, backfill), running=running)
    show_backfill(view, as_json=as_json)
