"""`mainspring breakers`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.table import Column
from mainspring.cli.wording import span

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.limits import BreakerView

EXAMPLES = ("mainspring breakers", "mainspring breakers --watch --interval 5s")
_COLUMNS = (
    Column("ID", right=True),
    Column("OF", least=8),
    Column("STATE"),
    Column("FAILED", rank=1, right=True),
    Column("HELD", rank=1, right=True),
    Column("OPENS FOR", rank=3, right=True),
    Column("NEXT PROBE", rank=2),
)


@with_list_options
def command(options: ListOptions) -> None:
    """List circuit breakers: which jobs and tasks are stopped because of failures, and until when."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.breakers()
    notes = ["more breakers are not shown"] if answer.more else []
    return Listing(
        answer,
        _COLUMNS,
        lambda times: [
            (
                str(breaker.breaker_id),
                owner_of(breaker),
                breaker.state,
                f"{breaker.failed} of {breaker.failures}",
                str(breaker.held),
                span(breaker.open_for),
                breaker.probe or ("-" if breaker.probe_at is None else times.brief(breaker.probe_at)),
            )
            for breaker in answer.breakers
        ],
        nothing="no circuit breakers; a job asks for one with --circuit-breaker on",
        notes=notes,
    )


def owner_of(breaker: BreakerView) -> str:
    return f"task {breaker.task}" if breaker.job_id is None else f"job {breaker.job_id}"
