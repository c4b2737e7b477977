"""`mainspring workers`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.screen import TOO_LARGE
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.cli.wording import Times
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import WorkerView

EXAMPLES = ("mainspring workers", "mainspring workers --watch", "mainspring workers --full-ids --utc")
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


@with_list_options
def command(options: ListOptions) -> None:
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


def _row(worker: WorkerView, times: Times) -> tuple[str, ...]:
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
