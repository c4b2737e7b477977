"""`mainspring drain`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import find_id
from mainspring.cli.screen import show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring drain web-1-4242", "mainspring drain 6f0a8b11")


def command(
    worker: Annotated[
        str,
        typer.Argument(
            metavar="WORKER",
            help="A worker's id or name. The end or the beginning of the id is enough.",
            autocompletion=completing.workers,
        ),
    ],
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Ask a worker to shut down: it takes no more runs, finishes those it has started and hands back the rest."""
    with connect(url, token_file, data) as client:
        view = client.drain_worker(_worker_id(client, worker))
    if as_json:
        show_json(view)
    else:
        left = max(view.holding, view.running)  # an older server tells only the second
        runs = f"; {left} run(s) to finish" if left else ""
        show_line(f"worker {view.name} ({view.worker_id}) is {view.state}{runs}")


def _worker_id(client: Client, worker: str) -> str:
    """Return the id itself, or the id of the live worker with this name, or the id that this is a part of."""
    from mainspring.domain.errors import Conflict, NotFound
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(worker) is not None:
        return worker
    named = [found for found in client.workers().workers if found.name == worker]
    living = [found.worker_id for found in named if found.state in ("LIVE", "DRAINING")]
    if len(living) > 1:
        raise Conflict(f"{len(living)} workers are named {worker}", hint="use one of their ids: " + ", ".join(living))
    if living:
        return living[0]
    if named:
        raise Conflict(f"worker {worker} has ended: {named[0].state}", code="worker_gone")
    match = find_id(client, worker, "worker")
    if match is not None:
        return match.id
    raise NotFound(f"there is no worker {worker!r}", hint="see: mainspring workers")
