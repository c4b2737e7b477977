"""`mainspring queues`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.wording import span

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import QueueView

EXAMPLES = ("mainspring queues", "mainspring queues --watch --interval 5s")
_COLUMNS = (
    Column("QUEUE", least=8),
    Column("WAITING", right=True),
    Column("BACKING OFF", rank=4, right=True),
    Column("HELD", rank=3, right=True),
    Column("RUNNING", rank=1, right=True),
    Column("OLDEST", rank=2, right=True),
    Column("ENDED/S", rank=3, right=True),
    Column("WORKERS", rank=2, right=True),
    Column("LIMITS", rank=5),
)


@with_list_options
def command(options: ListOptions) -> None:
    """List queues: waiting and running runs, the age of the oldest waiting run, and the rate over the last minute."""
    show_list(options, _read)


def _limits(queue: QueueView) -> str:
    """In short: `paused, 3/50 at once, 100/m, depth 1000`."""
    words = ["paused"] if queue.paused else []
    if (limits := queue.limits) is not None:
        if limits.concurrency is not None:
            words.append(f"{limits.in_use}/{limits.concurrency} at once")
        if limits.rate is not None:
            words.append(limits.rate)
        if limits.max_depth is not None:
            words.append(f"depth {limits.max_depth}")
    return ", ".join(words) or "-"


def _read(client: Client) -> Listing:
    answer = client.queues()
    rows = [
        (
            queue.name,
            str(queue.depth),
            str(queue.scheduled),
            str(queue.held),
            str(queue.running),
            "-" if queue.oldest_seconds is None else span(queue.oldest_seconds),
            f"{queue.rate:.1f}",
            str(queue.workers),
            _limits(queue),
        )
        for queue in answer.queues
    ]
    notes = [f"{answer.left_out} more queues are not shown"] if answer.left_out else []
    return Listing(answer, _COLUMNS, lambda _: rows, nothing="no queues; the first job creates one", notes=notes)
