"""`mainspring queues`"""

from __future__ import annotations

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import Column, show_json, show_rows
from mainspring.cli.wording import span

EXAMPLES = ("mainspring queues",)
_COLUMNS = (
    Column("QUEUE"),
    Column("WAITING", right=True),
    Column("BACKING OFF", right=True),
    Column("RUNNING", right=True),
    Column("OLDEST", right=True),
    Column("ENDED/S", right=True),
    Column("WORKERS", right=True),
)


def command(
    as_json: JsonFlag = False, url: UrlOption = None, token_file: TokenFileOption = None, data: DataOption = None
) -> None:
    """List queues: waiting and running runs, the age of the oldest waiting run, and the rate over the last minute."""
    with connect(url, token_file, data) as client:
        answer = client.queues()
    if as_json:
        show_json(answer)
        return
    rows = [
        (
            queue.name,
            str(queue.depth),
            str(queue.scheduled),
            str(queue.running),
            "-" if queue.oldest_seconds is None else span(queue.oldest_seconds),
            f"{queue.rate:.1f}",
            str(queue.workers),
        )
        for queue in answer.queues
    ]
    show_rows(_COLUMNS, rows, nothing="no queues; the first job creates one")
