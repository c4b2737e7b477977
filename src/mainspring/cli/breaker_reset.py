"""`mainspring breaker-reset`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.breakers import owner_of
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring breaker-reset 7", "mainspring breaker-reset billing.charge")


def command(
    breaker: Annotated[
        str,
        typer.Argument(
            metavar="BREAKER",
            help="The id of a circuit breaker, or the job or task that it is of.",
            autocompletion=completing.breakers,
        ),
    ],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Close a circuit breaker and forget its failures. The runs behind it may start."""
    with connect(url, token_file, data) as client:
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
