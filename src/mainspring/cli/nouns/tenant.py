"""`mainspring tenant`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.log_keeping import keep_logs, rule_given, show_retention
from mainspring.cli.noun import Noun
from mainspring.cli.pause_changes import pause_everything, resume_everything
from mainspring.cli.queue_limits import (
    BurstOption,
    ConcurrencyOption,
    MaxDepthOption,
    NoLimitsFlag,
    RateOption,
    ReasonOption,
    limits_given,
    needed_limits,
    show_tenant_limits,
)
from mainspring.cli.quota_options import (
    ConcurrentRuns,
    HistoryDays,
    LogBytes,
    PayloadBytes,
    QueuedRuns,
    RunsPerMinute,
    StoredJobs,
    Submissions,
    Tokens,
    own_tenant,
    quotas_given,
    show_usage,
)
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

noun = Noun("tenant", "Tenants: each has its own jobs, tokens and limits.")
_COLUMNS = (Column("ID", right=True), Column("NAME", least=12), Column("CREATED", rank=1))


@noun.verb("list", "mainspring tenant list", "mainspring tenant list --utc")
@with_list_options
def list_(options: ListOptions) -> None:
    """List tenants. A token of the tenant `default` lists all of them, other tokens list only their own tenant."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.tenants()
    return Listing(
        answer,
        _COLUMNS,
        lambda times: [(str(one.tenant_id), one.name, times.brief(one.created_at)) for one in answer.tenants],
        nothing="no tenants",
    )


@noun.verb("add", "(umask 077; mainspring tenant add acme > acme-token)")
def add(
    server: Server,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, and . _ -")],
    as_json: JsonFlag = False,
) -> None:
    """Create a tenant. Prints its first admin token, which is not shown again.

    Only an admin of the tenant `default` can create tenants.
    """
    with server.connect() as client:
        made = client.add_tenant(name)
    if as_json:
        show_json(made)
        return
    show_line(made.admin_token.token)
    say(f"created tenant {made.name}; this is its admin token, which is not shown again")


@noun.verb("show", "mainspring tenant show")
def show(server: Server, as_json: JsonFlag = False) -> None:
    """Show the limits of all runs of your tenant, and whether it is paused."""
    with server.connect() as client:
        show_tenant_limits(client.tenant_limits(), as_json=as_json)


@noun.verb("set", "mainspring tenant set --concurrency 200", "mainspring tenant set --no-limits")
def set_(
    server: Server,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    burst: BurstOption = None,
    max_depth: MaxDepthOption = None,
    no_limits: NoLimitsFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Set limits of all runs of your tenant. Limits that are not given stay as they are."""
    limits = needed_limits(limits_given(concurrency, rate, burst, max_depth, no_limits=no_limits))
    with server.connect() as client:
        client.set_tenant_limits(**limits)
        show_tenant_limits(client.tenant_limits(), as_json=as_json)


@noun.verb(
    "quotas", "mainspring tenant quotas", "mainspring tenant quotas acme --concurrent-runs 20 --tokens 25",
    "mainspring tenant quotas acme --stored-jobs none",
)  # fmt: skip
def quotas(
    server: Server,
    name: Annotated[
        str | None, typer.Argument(metavar="[TENANT]", help="Without it: that of the token.", show_default=False)
    ] = None,
    stored_jobs: StoredJobs = None,
    submissions_per_second: Submissions = None,
    runs_per_minute: RunsPerMinute = None,
    queued_runs: QueuedRuns = None,
    concurrent_runs: ConcurrentRuns = None,
    payload_bytes: PayloadBytes = None,
    log_bytes_per_day: LogBytes = None,
    tokens: Tokens = None,
    history_days: HistoryDays = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the quotas of a tenant and how much of them is used, or set those that are given.

    Only an admin of the tenant `default` can set quotas.
    """
    given = quotas_given(
        {
            "stored_jobs": stored_jobs, "submissions_per_second": submissions_per_second,
            "runs_per_minute": runs_per_minute, "queued_runs": queued_runs, "concurrent_runs": concurrent_runs,
            "payload_bytes": payload_bytes, "log_bytes_per_day": log_bytes_per_day, "tokens": tokens,
            "history_days": history_days,
        }
    )  # fmt: skip
    with server.connect() as client:
        tenant = name or own_tenant(client)
        changes: dict[str, Any] = given
        view = client.set_quotas(tenant, **changes) if given else client.tenant_usage(tenant)
    show_usage(view, as_json=as_json)


@noun.verb("logs", "mainspring tenant logs", "mainspring tenant logs --label audit=yes --keep 1y")
def logs(
    server: Server,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="Of runs with this label; can be repeated.", show_default=False),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="D", help="How long: 1y; or none to remove the rule.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show how long the output of runs with certain labels is kept, or set it.

    `--keep-logs` of a job comes first. Of several rules that fit a run, the longest time holds.
    """
    wanted = rule_given(label, keep)
    with server.connect() as client:
        view = client.log_retention() if wanted is None else keep_logs(client, *wanted)
    show_retention(view, as_json=as_json)


@noun.verb("pause", "mainspring tenant pause", "mainspring tenant pause --all-tenants")
def pause(
    server: Server,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Pause everything of all tenants; for instance administrators.")
    ] = False,
    reason: ReasonOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Start no run of your tenant until `mainspring tenant resume`. Runs that have started continue."""
    with server.connect() as client:
        pause_everything(client, reason, all_tenants=all_tenants, as_json=as_json)


@noun.verb("resume", "mainspring tenant resume", "mainspring tenant resume --all-tenants")
def resume(
    server: Server,
    all_tenants: Annotated[
        bool,
        typer.Option("--all-tenants", help="Resume everything of all tenants; for instance administrators."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Let runs of your tenant start again."""
    with server.connect() as client:
        resume_everything(client, all_tenants=all_tenants, as_json=as_json)
