"""What the commands about backfills share: ids, one backfill on the screen, and its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.find_id import choose
from mainspring.cli.screen import cell, say, show_fields, show_json, stderr
from mainspring.cli.text_formats import in_utc

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.backfills import BackfillView

BACKFILL_HELP = "The backfill's id. Its end or its beginning is enough."
_BAR_WIDTH = 30
_PATIENCE = 60.0  # waiting survives a restart of the server
_NEWEST = 1000


def backfill_id(client: Client, text: str) -> str:
    """The id of the backfill whose id begins or ends with the text. Only the newest are searched."""
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(text) is not None:
        return text
    return choose(text, (view.id for view in client.backfills(limit=_NEWEST).backfills), "backfill")


def show_backfill(view: BackfillView, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
        return
    show_fields(
        [
            ("backfill", view.id),
            ("job", view.job_id),
            ("state", view.state),
            ("reason", view.reason),
            ("range", f"{in_utc(view.from_)} to {in_utc(view.to)}, {view.order} first"),
            ("concurrency", str(view.concurrency)),
            ("progress", in_words(view)),
        ]
    )


def in_words(view: BackfillView) -> str:
    """ "12 of 30: 7 succeeded, 1 failed, 2 running, 2 existed before"."""
    counts = {
        "succeeded": view.succeeded,
        "failed": view.failed,
        "cancelled": view.cancelled,
        "skipped": view.skipped,
        "running": view.running,
        "existed before": view.existing,
    }
    parts = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{done(view)} of {view.total}" + (f": {parts}" if parts else "")


def done(view: BackfillView) -> int:
    """The fires that are over: they had a run before, or their run has ended."""
    return view.existing + view.created - view.running


def watch_backfill(client: Client, text: str, *, as_json: bool) -> int:
    """Show the progress until the end. Returns the exit code: 0 if it is completed and no run failed."""
    client.patience = _PATIENCE
    handle = client.backfill_handle(text)
    console = stderr()
    try:
        if as_json or not console.is_terminal:
            view = handle.wait()
        else:
            view = _with_bar(client, text)
    except KeyboardInterrupt:
        say(f"\nstopped watching; the backfill continues. To end it: mainspring backfill cancel {text}")
        return INTERRUPTED
    show_backfill(view, as_json=as_json)
    return 0 if view.state == "completed" and not view.failed else FAILURE


def _with_bar(client: Client, text: str) -> BackfillView:
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    with Live(console=stderr(), refresh_per_second=4, transient=True) as live:

        def draw(view: BackfillView) -> None:
            row = Table.grid(padding=(0, 1))
            bar = ProgressBar(total=max(1, view.total), completed=done(view), width=_BAR_WIDTH)
            row.add_row(cell(view.state), bar, cell(in_words(view)), cell(view.reason or ""))
            live.update(row, refresh=True)

        return client.backfill_handle(text).wait(seen=draw)
