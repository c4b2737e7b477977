"""The options of the verbs of `dead-letter` that select dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing

if TYPE_CHECKING:
    from mainspring.sdk.client.calls import DeadLetterFilters

_PANEL = "Filters"

JobOption = Annotated[
    str | None,
    typer.Option(
        "--job",
        metavar="ID",
        help="Only this job.",
        autocompletion=completing.jobs,
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task", help="Only this task.", autocompletion=completing.tasks, rich_help_panel=_PANEL, show_default=False
    ),
]
QueueOption = Annotated[
    str | None,
    typer.Option(
        "--queue",
        metavar="Q",
        help="Only this queue.",
        autocompletion=completing.queues,
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
ErrorOption = Annotated[
    str | None,
    typer.Option(
        "--error", metavar="TEXT", help="Text that the last error contains.", rich_help_panel=_PANEL, show_default=False
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="T", help="Only those that failed at or after T.", rich_help_panel=_PANEL, show_default=False
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="T", help="Only those that failed before T.", rich_help_panel=_PANEL, show_default=False
    ),
]
AllFlag = Annotated[bool, typer.Option("--all", help="All dead letters.", rich_help_panel=_PANEL, show_default=False)]
RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN",
        help="Ids of dead letters. Their ends or beginnings are enough.",
        autocompletion=completing.dead_letters,
        show_default=False,
    ),
]


def filters_of(
    job: str | None, task: str | None, queue: str | None, error: str | None, since: str | None, until: str | None
) -> DeadLetterFilters:
    return {"job": job, "task": task, "queue": queue, "error": error, "since": since, "until": until}


def check_choice(run_ids: list[str] | None, filters: DeadLetterFilters, *, everything: bool) -> None:
    """Require ids, or at least one filter, or --all. Ids and filters cannot be combined."""
    from mainspring.domain.errors import InvalidInput

    by_filter = everything or any(value is not None for value in filters.values())
    if not run_ids and not by_filter:
        raise InvalidInput(
            "no dead letters are selected", hint="give run ids, a filter such as --job, --task or --error, or --all"
        )
    if run_ids and by_filter:
        raise InvalidInput("run ids and filters cannot be combined", hint="give either run ids or filters")
