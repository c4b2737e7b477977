"""`mainspring breaker`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.table import Column
from mainspring.cli.text_formats import span

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.limits import BreakerView

noun = Noun("breaker", "Circuit breakers: they stop jobs and tasks that fail again and again.")
_COLUMNS = (
    Column("ID", right=True),
    Column("OF", least=8),
    Column("STATE"),
    Column("FAILED", rank=1, right=True),
    Column("HELD", rank=1, right=True),
    Column("OPENS FOR", rank=3, right=True),
    Column("NEXT PROBE", rank=2),
)


@noun.verb("list", "mainspring breaker list", "mainspring breaker list --watch --interval 5s")
@with_list_options
def list_(options: ListOptions) -> None:
    """List circuit breakers: which jobs and tasks are stopped because of failures, and until when."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.breakers()
    notes = ["more breakers are not shown"] if answer.more else []
    return Listing(
        answer,
        _COLUMNS,
        lambda times: [
            (
                str(breaker.breaker_id),
                owner_of(breaker),
                breaker.state,
                f"{breaker.failed} of {breaker.failures}",
                str(breaker.held),
                span(breaker.open_for),
                breaker.probe or ("-" if breaker.probe_at is None else times.brief(breaker.probe_at)),
            )
            for breaker in answer.breakers
        ],
        nothing="no circuit breakers; a job asks for one with --circuit-breaker on",
        notes=notes,
    )


def owner_of(breaker: BreakerView) -> str:
    return f"task {breaker.task}" if breaker.job_id is None else f"job {breaker.job_id}"


@noun.verb("reset", "mainspring breaker reset 7", "mainspring breaker reset billing.charge")
def reset(
    server: Server,
    breaker: Annotated[
        str,
        typer.Argument(
            metavar="BREAKER",
            help="The id of a circuit breaker, or the job or task that it is of.",
            autocompletion=completing.breakers,
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Close a circuit breaker and forget its failures. The runs behind it may start."""
    with server.connect() as client:
        view = client.reset_breaker(_breaker_id(client, breaker))
    if as_json:
        show_json(view)
    else:
        show_line(f"the circuit breaker of {owner_of(view)} is {view.state}")


def _breaker_id(client: Client, breaker: str) -> str:
    """The id itself, or that of the breaker of this job or task."""
    from mainspring.domain.errors import Conflict

    if breaker.isdecimal():
        return breaker
    found = [item for item in client.breakers().breakers if breaker in (item.job_id, item.task)]
    if len(found) > 1:
        ids = ", ".join(f"{item.breaker_id} ({owner_of(item)})" for item in found)
        raise Conflict(f"{len(found)} circuit breakers are of {breaker}", hint=f"use one of their ids: {ids}")
    return str(found[0].breaker_id) if found else breaker
