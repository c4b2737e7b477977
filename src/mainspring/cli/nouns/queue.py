"""`mainspring queue`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.pause_changes import pause_queue, resume_queue
from mainspring.cli.queue_limits import (
    BurstOption,
    ConcurrencyOption,
    MaxDepthOption,
    NoLimitsFlag,
    RateOption,
    ReasonOption,
    limit_fields,
    limits_given,
    needed_limits,
    show_tenant_limits,
)
from mainspring.cli.screen import show_fields, show_json, show_rows
from mainspring.cli.table import Column
from mainspring.cli.text_formats import span

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import QueueView

noun = Noun("queue", "Queues: what waits, and how much of it may start.", default="show-or-set")
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
_SCALING = (
    Column("QUEUE", least=8),
    Column("BEHIND", right=True),
    Column("SLOTS WANTED", right=True),
    Column("BUSY", rank=1, right=True),
    Column("FREE", rank=1, right=True),
    Column("WAITING", rank=1, right=True),
    Column("A RUN TAKES", rank=2, right=True),
)
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=completing.queues)]


@noun.verb("list", "mainspring queue list", "mainspring queue list --watch --interval 5s")
@with_list_options
def list_(options: ListOptions) -> None:
    """List queues: waiting and running runs, the age of the oldest waiting run, and the rate over the last minute."""
    show_list(options, _read)


def _limits(queue: QueueView) -> str:
    """The limits of a queue in short form: `paused, 3/50 at once, 100/m, depth 1000`."""
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


@noun.verb("show", "mainspring queue show mails")
def show(server: Server, name: QueueArgument, as_json: JsonFlag = False) -> None:
    """Show a queue: its limits, what waits and what runs."""
    with server.connect() as client:
        _show(client, name, as_json=as_json)


@noun.verb(
    "set",
    "mainspring queue set mails --concurrency 50 --rate 100/m --max-depth 100000",
    "mainspring queue set mails --no-limits",
)
def set_(
    server: Server,
    name: QueueArgument,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    burst: BurstOption = None,
    max_depth: MaxDepthOption = None,
    no_limits: NoLimitsFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Set limits of a queue. Limits that are not given stay as they are."""
    limits = needed_limits(limits_given(concurrency, rate, burst, max_depth, no_limits=no_limits))
    with server.connect() as client:
        client.set_queue_limits(name, **limits)
        _show(client, name, as_json=as_json)


@noun.verb("scaling", "mainspring queue scaling", "mainspring queue scaling mails --within 30")
def scaling(
    server: Server,
    name: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.", autocompletion=completing.queues)
    ] = None,
    within: Annotated[
        float | None, typer.Option("--within", metavar="SECONDS", help="What waits is to start within this: 60.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show how far queues are behind, and how many slots of workers they want."""
    with server.connect() as client:
        seen = client.scaling(name, within=within)
    if as_json:
        show_json(seen)
        return
    rows = [
        (
            queue.queue,
            span(queue.backlog_s),
            str(queue.slots_wanted),
            str(queue.running),
            str(queue.free),
            str(queue.waiting),
            "-" if queue.duration is None else span(queue.duration),
        )
        for queue in seen.queues
    ]
    show_rows(_SCALING, rows, nothing="no queues; the first job creates one")


@noun.verb("pause", "mainspring queue pause mails", "mainspring queue pause mails --reason 'the mail service is down'")
def pause(server: Server, name: QueueArgument, reason: ReasonOption = None, as_json: JsonFlag = False) -> None:
    """Start no run of a queue until `mainspring queue resume`. Runs that have started continue."""
    with server.connect() as client:
        pause_queue(client, name, reason, as_json=as_json)


@noun.verb("resume", "mainspring queue resume mails")
def resume(server: Server, name: QueueArgument, as_json: JsonFlag = False) -> None:
    """Let runs of a queue start again."""
    with server.connect() as client:
        resume_queue(client, name, as_json=as_json)


@noun.verb("show-or-set", "mainspring queue mails", "mainspring queue set mails --concurrency 50", listed=False)
def show_or_set(
    server: Server,
    name: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="The queue.", autocompletion=completing.queues)
    ] = None,
    tenant: Annotated[bool, typer.Option("--tenant", help="The limits of all runs of the tenant.")] = False,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    burst: BurstOption = None,
    max_depth: MaxDepthOption = None,
    no_limits: NoLimitsFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a queue with its limits, or set them. Limits that are not given stay as they are."""
    from mainspring.domain.errors import InvalidInput

    if (name is None) != tenant:
        raise InvalidInput("name a queue, or give --tenant, but not both", hint="such as: mainspring queue mails")
    limits = limits_given(concurrency, rate, burst, max_depth, no_limits=no_limits)
    with server.connect() as client:
        if limits is not None and name is None:
            client.set_tenant_limits(**limits)
        elif limits is not None and name is not None:
            client.set_queue_limits(name, **limits)
        if name is None:
            show_tenant_limits(client.tenant_limits(), as_json=as_json)
        else:
            _show(client, name, as_json=as_json)


def _show(client: Client, name: str, *, as_json: bool) -> None:
    view = client.queue(name)
    if as_json:
        show_json(view)
        return
    from mainspring.wire.gates import GateView

    limits = limit_fields(view.limits or GateView(view.name), view.paused_why)
    show_fields([("queue", view.name), *limits, *_figures(view)])


def _figures(view: QueueView) -> list[tuple[str, str]]:
    oldest = "" if view.oldest_seconds is None else f", the oldest for {span(view.oldest_seconds)}"
    return [
        ("waiting", f"{view.depth}{oldest}"),
        ("running", str(view.running)),
        ("ended", f"{view.rate:.1f}/s in the last minute"),
        ("workers", str(view.workers)),
        *(("behind" if not turn else "", why) for turn, why in enumerate(view.behind or [])),
    ]
