"""`mainspring failures`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.text_formats import TimeFormat

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring failures", "mainspring failures --task mail.send --since 2026-07-01T00:00Z")
_COLUMNS = (
    Column("COUNT", right=True),
    Column("ENDED RUNS", rank=2, right=True),
    Column("TASK", rank=1, least=10),
    Column("ERROR", least=18),
    Column("SINCE", rank=3),
    Column("LAST", rank=1),
    Column("JOBS", rank=4, right=True),
    Column("SAMPLE RUN", ids=True),
)


@with_list_options
def command(
    options: ListOptions,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="T", help="From this time on. Default: a day ago.", show_default=False),
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Only of this task.", show_default=False)] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only of this queue.", show_default=False)] = None,
    job: Annotated[str | None, typer.Option("--job", help="Only of this job.", show_default=False)] = None,
) -> None:
    """List what fails, grouped by error: how often, since when, and a run to look at."""

    def read(client: Client) -> Listing:
        answer = client.failures(since=since, task=task, queue=queue, job=job)
        times = TimeFormat(datetime.now(UTC))
        rows = [
            (
                f"{group.count:,}",
                f"{group.failed:,}",
                ", ".join(group.tasks) or "-",
                group.title,
                times.brief(group.first),
                times.brief(group.last),
                f"{group.jobs:,}",
                group.sample_run,
            )
            for group in answer.groups
        ]
        notes = [f"{answer.left_out:,} more errors are not shown"] if answer.left_out else []
        return Listing(answer, _COLUMNS, lambda _: rows, nothing="nothing has failed", notes=notes)

    show_list(options, read)
