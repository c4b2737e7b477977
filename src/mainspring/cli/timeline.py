"""`mainspring timeline`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import Column, show_json, show_rows
from mainspring.cli.which_run import RunOrJob, call_for_run
from mainspring.cli.wording import local, span

if TYPE_CHECKING:
    from mainspring.wire.runs import TimelineEntry

EXAMPLES = ("mainspring timeline 0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11",)
_COLUMNS = (
    Column("AT", whole=True),
    Column("AFTER", right=True),
    Column("STATE", whole=True),
    Column("TRY", right=True),
    Column("WHERE"),
    Column("TOOK", right=True),
    Column("NOTE"),
)


def command(
    run_or_job: RunOrJob,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show the history of a run: each state with its time, attempt, worker or node, and reason."""
    with connect(url, token_file, data) as client:
        entries = call_for_run(client, run_or_job, client.timeline)
    if as_json:
        show_json(entries)
    else:
        show_rows(_COLUMNS, [_row(entry, entries[0]) for entry in entries], nothing="no entries")


def _row(entry: TimelineEntry, first: TimelineEntry) -> tuple[str, ...]:
    notes = [entry.reason, (entry.error or "").strip().partition("\n")[0]]
    return (
        local(entry.at),
        f"+{span(max(0.0, (entry.at - first.at).total_seconds()))}",
        entry.state,
        "" if entry.attempt is None else str(entry.attempt),
        _where(entry),
        "" if entry.duration is None else span(entry.duration),
        ": ".join(note for note in notes if note),
    )


def _where(entry: TimelineEntry) -> str:
    if entry.node_id is not None:
        return f"node {entry.node_id}"
    return entry.worker_name or entry.worker_id or ""
