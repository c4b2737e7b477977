"""`mainspring backfill`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.backfilling import watch_backfill
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import JOB_HELP, call_for_job
from mainspring.cli.screen import say, show_json, show_line

EXAMPLES = (
    "mainspring backfill daily_report --from 2025-01-01T00:00:00Z --to 2025-02-01T00:00:00Z",
    "mainspring backfill sync --from 2025-01-01T00:00Z --to 2025-01-08T00:00Z --concurrency 4 --order newest --watch",
)


def command(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=completing.jobs)],
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
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:  # fmt: skip
    """Make up for fires of the past: each fire of the job's schedule in the range becomes a run, unless it has one
    already. Prints the id of the backfill."""
    with connect(url, token_file, data) as client:
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
        say(f"{view.total} fires; to see the progress: mainspring backfill-status {view.id} --watch")
