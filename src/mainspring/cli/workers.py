"""`mainspring workers`"""

from __future__ import annotations

from datetime import UTC, datetime

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import TOO_LARGE, Column, say, show_json, show_rows
from mainspring.cli.wording import relative

EXAMPLES = ("mainspring workers",)
_COLUMNS = (
    Column("WORKER", whole=True),
    Column("NAME"),
    Column("FOR", whole=True),
    Column("STATE", whole=True),
    Column("RUNNING", right=True),
    Column("QUEUES"),
    Column("TASKS"),
    Column("LABELS"),
    Column("LAST BEAT", whole=True),
)


def command(
    as_json: JsonFlag = False, url: UrlOption = None, token_file: TokenFileOption = None, data: DataOption = None
) -> None:
    """List workers: their state, how many slots are busy, and what they can run."""
    with connect(url, token_file, data) as client:
        answer = client.workers()
    if as_json:
        show_json(answer)
        return
    now = datetime.now(UTC)
    rows = [
        (
            worker.worker_id,
            worker.name,
            "all tenants" if worker.shared else "own",
            worker.state,
            f"{worker.running}/{worker.slots}",
            TOO_LARGE if "queues" in worker.left_out else ", ".join(worker.queues),
            TOO_LARGE if "tasks" in worker.left_out else ", ".join(worker.tasks),
            TOO_LARGE
            if "labels" in worker.left_out
            else ", ".join(f"{name}={value}" for name, value in sorted(worker.labels.items())),
            relative(worker.last_beat_at, now),
        )
        for worker in answer.workers
    ]
    show_rows(_COLUMNS, rows, nothing="no workers; start one with: mainspring worker")
    if answer.more:
        say("there are more workers than a list shows; the live ones come first")
