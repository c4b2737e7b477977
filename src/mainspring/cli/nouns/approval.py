"""`mainspring approval`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

noun = Noun("approval", "Approvals: steps of workflows that wait for a person.")
_COLUMNS = (
    Column("RUN", least=8),
    Column("APPROVAL", least=8),
    Column("WORKFLOW", rank=1, least=8),
    Column("STEP", rank=2),
    Column("SINCE", rank=1),
    Column("TIMES OUT", rank=2),
    Column("BY", rank=3),
)
_Run = Annotated[str, typer.Argument(metavar="RUN", help="The run of the step, as the list shows it.")]
_Reason = Annotated[str | None, typer.Option("--reason", help="Why. It is kept with the decision.")]


@noun.verb("list", "mainspring approval list", "mainspring approval list --everybody")
@with_list_options
def list_(
    options: ListOptions,
    everybody: Annotated[bool, typer.Option("--everybody", help="Also those that others decide.")] = False,
) -> None:
    """List the steps that wait for you."""
    show_list(options, lambda client: _read(client, everybody=everybody))


def _read(client: Client, *, everybody: bool) -> Listing:
    answer = client.approvals(everybody=everybody)
    return Listing(
        answer,
        _COLUMNS,
        lambda times: [
            (
                one.run_id,
                one.approval,
                one.workflow_id,
                one.step,
                times.brief(one.waits_since),
                "-" if one.times_out_at is None else times.brief(one.times_out_at),
                ", ".join(one.by),
            )
            for one in answer.approvals
        ],
        nothing="nothing waits for you",
        notes=[] if answer.next is None else ["more approvals are not shown"],
    )


@noun.verb(
    "approve",
    "mainspring approval approve 6f0a8b11-6f4e-7000-8000-000000000002",
)
def approve(
    server: Server,
    run: _Run,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="NAME=VALUE", help="A field. The value is JSON, or else a text. Repeatable."),
    ] = None,
    reason: _Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Approve: the step succeeds, and what follows it starts."""
    with server.connect() as client:
        done = client.approve(run, dict(map(_field, field or [])), reason=reason)
    if as_json:
        show_json(done)
    else:
        show_line(f"{done.approval} is approved")


@noun.verb("reject", "mainspring approval reject 6f0a8b11-6f4e-7000-8000-000000000002")
def reject(server: Server, run: _Run, reason: _Reason = None, as_json: JsonFlag = False) -> None:
    """Reject: the step fails."""
    with server.connect() as client:
        done = client.reject(run, reason=reason)
    if as_json:
        show_json(done)
    else:
        show_line(f"{done.approval} is rejected")


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--field")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value
