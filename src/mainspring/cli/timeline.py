"""`mainspring timeline`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.which_run import RunOrJob, call_for_run
from mainspring.cli.wording import span
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from mainspring.cli.wording import Times
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import TimelineEntry

EXAMPLES = ("mainspring timeline 6f0a8b11", "mainspring timeline daily_report --utc")
_COLUMNS = (
    Column("AT", rank=1),
    Column("AFTER", rank=4, right=True),
    Column("STATE"),
    Column("TRY", rank=5, right=True),
    Column("WHERE", rank=3, least=10, ids=True),
    Column("TOOK", rank=4, right=True),
    Column("NOTE", rank=2, least=24, ids=True),
)


@with_list_options
def command(
    run_or_job: RunOrJob,
    options: ListOptions,
) -> None:
    """Show the history of a run: each state with its time, attempt, worker or node, and reason."""

    def read(client: Client) -> Listing:
        entries = call_for_run(client, run_or_job, client.timeline)
        return Listing(
            entries,
            _COLUMNS,
            lambda times: [_row(entry, entries[0], times) for entry in entries],
            nothing="no entries",
        )

    show_list(options, read)


def _row(entry: TimelineEntry, first: TimelineEntry, times: Times) -> tuple[str, ...]:
    notes = list(dict.fromkeys([entry.reason, error_line(entry.error or "")]))
    return (
        times.brief(entry.at),
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
