"""Quotas of a tenant: the options that set them, and how they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.queue_limits import number_given
from mainspring.cli.screen import show_fields, show_json, show_rows
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.quotas import TenantUsage

_NUMBER = "A number, or none to remove the quota."
_COLUMNS = (Column("QUOTA"), Column("USED", right=True), Column("LIMIT", right=True), Column("", rank=1))


def _option(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar="N", help=f"{what} {_NUMBER}", show_default=False)


StoredJobs = Annotated[str | None, _option("stored-jobs", "Jobs that wait for a time or recur.")]
Submissions = Annotated[str | None, _option("submissions-per-second", "Jobs that are submitted in a second.")]
RunsPerMinute = Annotated[str | None, _option("runs-per-minute", "Starts of runs in a minute.")]
QueuedRuns = Annotated[str | None, _option("queued-runs", "Runs that wait.")]
ConcurrentRuns = Annotated[str | None, _option("concurrent-runs", "Runs that are with workers.")]
PayloadBytes = Annotated[str | None, _option("payload-bytes", "Bytes of the payload of one job.")]
LogBytes = Annotated[str | None, _option("log-bytes-per-day", "Bytes of output that are stored on a day.")]
Tokens = Annotated[str | None, _option("tokens", "Valid tokens.")]
HistoryDays = Annotated[str | None, _option("history-days", "Days for which ended runs are kept.")]


def quotas_given(options: dict[str, str | None]) -> dict[str, object]:
    """The quotas that options set, by their field."""
    return {
        name: number_given(text, f"--{name.replace('_', '-')}") for name, text in options.items() if text is not None
    }


def own_tenant(client: Client) -> str:
    """The name of the tenant of the token. An admin of the tenant `default` sees all tenants."""
    names = [one.name for one in client.tenants().tenants]
    return names[0] if len(names) == 1 else "default"


def show_usage(view: TenantUsage, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
        return
    changed = None if view.updated_by is None else f"by {view.updated_by}, version {view.version}"
    show_fields([("tenant", view.tenant), ("quotas set", changed)])
    rows = [
        (
            one.quota,
            _number(one.used),
            "none" if one.limit is None else _number(one.limit),
            f"{100 * (one.used or 0) // (one.limit or 1)} % used" if one.near else "",
        )
        for one in view.quotas
    ]
    show_rows(_COLUMNS, rows, nothing="no quotas")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
