"""Which dead letters: the options that `dead-letters`, `replay` and `discard` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mainspring.sdk.client.calls import DeadLetterFilters

_PANEL = "Which"

JobOption = Annotated[
    str | None, typer.Option("--job", metavar="ID", help="Of this job.", rich_help_panel=_PANEL, show_default=False)
]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="Of this task.", rich_help_panel=_PANEL, show_default=False)
]
QueueOption = Annotated[
    str | None, typer.Option("--queue", metavar="Q", help="Of this queue.", rich_help_panel=_PANEL, show_default=False)
]
ErrorOption = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", help="Part of the last error.", rich_help_panel=_PANEL, show_default=False),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="T", help="That died since then.", rich_help_panel=_PANEL, show_default=False),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="T", help="That died before then.", rich_help_panel=_PANEL, show_default=False),
]
AllFlag = Annotated[
    bool, typer.Option("--all", help="Every dead letter there is.", rich_help_panel=_PANEL, show_default=False)
]
RunsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="RUN", help="Ids of dead letters.", show_default=False)
]


def filters_of(
    job: str | None, task: str | None, queue: str | None, error: str | None, since: str | None, until: str | None
) -> DeadLetterFilters:
    return {"job": job, "task": task, "queue": queue, "error": error, "since": since, "until": until}


def check_choice(run_ids: list[str] | None, filters: DeadLetterFilters, *, everything: bool) -> None:
    """Ids, or a filter, or --all: something must be said, and only one kind of it."""
    from mainspring.domain.errors import InvalidInput

    by_filter = everything or any(value is not None for value in filters.values())
    if not run_ids and not by_filter:
        raise InvalidInput("nothing says which dead letters", hint="name runs, or --job, --task, --error ..., or --all")
    if run_ids and by_filter:
        raise InvalidInput("runs and filters both say which dead letters", hint="give one of them")
