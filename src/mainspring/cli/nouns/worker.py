"""`mainspring worker`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.find_id import find_id
from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import TOO_LARGE, show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.cli.text_formats import TimeFormat
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import WorkerView

noun = Noun("worker", "Workers: the processes that run jobs.", default="start")
_COLUMNS = (
    Column("WORKER", ids=True),
    Column("NAME", least=12),
    Column("FOR", rank=6),
    Column("STATE"),
    Column("RUNNING", rank=1, right=True),
    Column("QUEUES", rank=3, least=12),
    Column("TASKS", rank=4, least=14),
    Column("LABELS", rank=5, least=14),
    Column("LAST BEAT", rank=2),
)


@noun.verb(
    "list", "mainspring worker list", "mainspring worker list --watch", "mainspring worker list --full-ids --utc"
)
@with_list_options
def list_(options: ListOptions) -> None:
    """List workers: their state, how many slots are busy, and what they can run."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.workers()
    return Listing(
        answer,
        _COLUMNS,
        lambda times: [_row(worker, times) for worker in answer.workers],
        nothing="no workers; start one with: mainspring worker",
        notes=["there are more workers than a list shows; the live ones come first"] if answer.more else [],
    )


def _row(worker: WorkerView, times: TimeFormat) -> tuple[str, ...]:
    labels = ", ".join(f"{name}={value}" for name, value in sorted(worker.labels.items()))
    return (
        worker.worker_id,
        worker.name,
        "all tenants" if worker.shared else "own",
        worker.state,
        f"{worker.running}/{worker.slots}",
        TOO_LARGE if "queues" in worker.left_out else ", ".join(worker.queues),
        TOO_LARGE if "tasks" in worker.left_out else ", ".join(worker.tasks),
        TOO_LARGE if "labels" in worker.left_out else labels,
        times.brief(worker.last_beat_at),
    )


@noun.verb("drain", "mainspring worker drain web-1-4242", "mainspring worker drain 6f0a8b11")
def drain(
    server: Server,
    worker: Annotated[
        str,
        typer.Argument(
            metavar="WORKER",
            help="A worker's id or name. The end or the beginning of the id is enough.",
            autocompletion=completing.workers,
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Ask a worker to shut down: it takes no more runs, finishes those it has started and hands back the rest."""
    with server.connect() as client:
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
    raise NotFound(f"there is no worker {worker!r}", hint="see: mainspring worker list")
