"""`mainspring jobs`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import Column, say, show_json, show_rows
from mainspring.cli.wording import relative

EXAMPLES = ("mainspring jobs --status failed", "mainspring jobs --label team=bi --queue heavy --json")
_COLUMNS = (
    Column("JOB"),
    Column("NAME"),
    Column("TASK"),
    Column("SCHEDULE"),
    Column("STATUS", whole=True),
    Column("NEXT", whole=True),
    Column("QUEUE"),
)


def command(
    status: Annotated[
        str | None,
        typer.Option(
            "--status", help="scheduled, running, paused, completed, failed or cancelled.", show_default=False
        ),
    ] = None,
    latest_run: Annotated[
        str | None,
        typer.Option("--latest-run", help="Status of the latest run, e.g. failed.", show_default=False),
    ] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="K=V", show_default=False)] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="Q", show_default=False)] = None,
    owner: Annotated[str | None, typer.Option("--owner", show_default=False)] = None,
    search: Annotated[
        str | None, typer.Option("--search", "-q", help="Text that the name or id contains.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000)] = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Continue after the previous page.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """List jobs that will fire, or with --status those that have this status, also if they have run already."""
    wanted = label if label is None or ":" in label else label.replace("=", ":", 1)
    with connect(url, token_file, data) as client:
        page = client.jobs(
            status=status, latest_run=latest_run, label=wanted, queue=queue, owner=owner, q=search, limit=limit,
            cursor=cursor,
        )  # fmt: skip
    if as_json:
        show_json(page)
        return
    now = datetime.now(UTC)
    rows = [
        (job.job_id, job.name, job.task, job.schedule, job.status, relative(job.next_fire_at, now), job.queue)
        for job in page.jobs
    ]
    show_rows(_COLUMNS, rows, nothing="no jobs; to list what has run: mainspring runs")
    if page.next is not None:
        say(f"more: repeat with --cursor {page.next}")
