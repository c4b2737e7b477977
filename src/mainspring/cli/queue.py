"""`mainspring queue`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_fields, show_json
from mainspring.cli.wording import span

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.gates import GateView
    from mainspring.wire.runs import QueueView

EXAMPLES = (
    "mainspring queue mails --concurrency 50 --rate 100/m --max-depth 100000",
    "mainspring queue mails --no-limits",
    "mainspring queue --tenant --concurrency 200",
)
_NONE = "none"
_NUMBER = f"A number, or {_NONE} to remove the limit."


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="The queue.", autocompletion=completing.queues)
    ] = None,
    tenant: Annotated[bool, typer.Option("--tenant", help="The limits of all runs of the tenant.")] = False,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", metavar="N", help=f"How many runs run at once. {_NUMBER}")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="RATE", help=f"How often runs start, such as 100/m, or {_NONE}."),
    ] = None,
    burst: Annotated[
        int | None, typer.Option("--burst", metavar="N", help="With --rate: how many may start at once.")
    ] = None,
    max_depth: Annotated[
        str | None, typer.Option("--max-depth", metavar="N", help=f"How many runs may wait. {_NUMBER}")
    ] = None,
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Remove all limits. A pause stays.")] = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show a queue with its limits, or set them. Limits that are not given stay as they are."""
    from msgspec import UNSET

    from mainspring.domain.errors import InvalidInput

    if (name is None) != tenant:
        raise InvalidInput("name a queue, or give --tenant, but not both", hint="such as: mainspring queue mails")
    given = any(option is not None for option in (concurrency, rate, burst, max_depth))
    if no_limits and given:
        raise InvalidInput("--no-limits removes all limits, so give none", field="--no-limits")
    if burst is not None and rate is None:
        raise InvalidInput("a burst belongs to a rate", field="--burst", hint="give both: --rate 100/m --burst 20")
    with connect(url, token_file, data) as client:
        if given or no_limits:
            limits = {
                "concurrency": None if no_limits else _number(concurrency, "--concurrency"),
                "rate": None if no_limits or rate == _NONE else UNSET if rate is None else rate,
                "burst": burst,
                "max_depth": None if no_limits else _number(max_depth, "--max-depth"),
            }
            if name is None:
                client.set_tenant_limits(**limits)  # type: ignore[arg-type]
            else:
                client.set_queue_limits(name, **limits)  # type: ignore[arg-type]
        _show(client, name, as_json=as_json)


def _number(text: str | None, option: str) -> object:
    from msgspec import UNSET

    from mainspring.domain.errors import InvalidInput

    if text is None:
        return UNSET
    if text == _NONE:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise InvalidInput(f"{text!r} is not a number", field=option, expected=f"a whole number, or {_NONE}")
    return int(text)


def _show(client: Client, name: str | None, *, as_json: bool) -> None:
    view = client.tenant_limits() if name is None else client.queue(name)
    if as_json:
        show_json(view)
        return
    from mainspring.wire.gates import GateView

    if isinstance(view, GateView):
        paused = f"paused by {view.paused_by}" if view.paused else None
        show_fields([("limits of", "all runs of the tenant"), *_pause(paused), *_limits(view)])
    else:
        limits = view.limits or GateView(view.name)
        show_fields([("queue", view.name), *_pause(view.paused_why), *_limits(limits), *_figures(view)])


def _pause(words: str | None) -> list[tuple[str, str]]:
    return [] if words is None else [("paused", words)]


def _limits(view: GateView) -> list[tuple[str, str]]:
    concurrency = "no limit" if view.concurrency is None else f"{view.concurrency}, {view.in_use} in use"
    rate = "no limit" if view.rate is None else f"{view.rate}, burst {view.burst}, {view.tokens} may start now"
    depth = "no limit" if view.max_depth is None else str(view.max_depth)
    return [("concurrency", concurrency), ("rate", rate), ("max depth", depth)]


def _figures(view: QueueView) -> list[tuple[str, str]]:
    oldest = "" if view.oldest_seconds is None else f", the oldest for {span(view.oldest_seconds)}"
    return [
        ("waiting", f"{view.depth}{oldest}"),
        ("running", str(view.running)),
        ("ended", f"{view.rate:.1f}/s in the last minute"),
        ("workers", str(view.workers)),
    ]
