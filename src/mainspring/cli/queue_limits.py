"""Limits of a queue, or of all runs of a tenant: the options that set them, and how they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mainspring.wire.gates import GateView

_NONE = "none"
_NUMBER = f"A number, or {_NONE} to remove the limit."
ConcurrencyOption = Annotated[
    str | None, typer.Option("--concurrency", metavar="N", help=f"How many runs run at once. {_NUMBER}")
]
RateOption = Annotated[
    str | None, typer.Option("--rate", metavar="RATE", help=f"How often runs start, such as 100/m, or {_NONE}.")
]
BurstOption = Annotated[
    int | None, typer.Option("--burst", metavar="N", help="With --rate: how many may start at once.")
]
MaxDepthOption = Annotated[
    str | None, typer.Option("--max-depth", metavar="N", help=f"How many runs may wait. {_NUMBER}")
]
ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for people who look.")]
NoLimitsFlag = Annotated[bool, typer.Option("--no-limits", help="Remove all limits. A pause stays.")]


def limits_given(
    concurrency: str | None, rate: str | None, burst: int | None, max_depth: str | None, *, no_limits: bool
) -> dict[str, Any] | None:
    """The limits that the options set. None if there are none."""
    from msgspec import UNSET

    from mainspring.domain.errors import InvalidInput

    given = any(option is not None for option in (concurrency, rate, burst, max_depth))
    if no_limits and given:
        raise InvalidInput("--no-limits removes all limits, so give none", field="--no-limits")
    if burst is not None and rate is None:
        raise InvalidInput("a burst belongs to a rate", field="--burst", hint="give both: --rate 100/m --burst 20")
    if not given and not no_limits:
        return None
    return {
        "concurrency": None if no_limits else number_given(concurrency, "--concurrency"),
        "rate": None if no_limits or rate == _NONE else UNSET if rate is None else rate,
        "burst": burst,
        "max_depth": None if no_limits else number_given(max_depth, "--max-depth"),
    }


def needed_limits(limits: dict[str, Any] | None) -> dict[str, Any]:
    from mainspring.domain.errors import InvalidInput

    if limits is None:
        raise InvalidInput("no limit is given", hint="give --concurrency, --rate, --max-depth or --no-limits")
    return limits


def number_given(text: str | None, option: str) -> object:
    from msgspec import UNSET

    from mainspring.domain.errors import InvalidInput

    if text is None:
        return UNSET
    if text == _NONE:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise InvalidInput(f"{text!r} is not a number", field=option, expected=f"a whole number, or {_NONE}")
    return int(text)


def limit_fields(view: GateView, paused: str | None) -> list[tuple[str, str | None]]:
    concurrency = "no limit" if view.concurrency is None else f"{view.concurrency}, {view.in_use} in use"
    rate = "no limit" if view.rate is None else f"{view.rate}, burst {view.burst}, {view.tokens} may start now"
    depth = "no limit" if view.max_depth is None else str(view.max_depth)
    return [("paused", paused), ("concurrency", concurrency), ("rate", rate), ("max depth", depth)]


def show_tenant_limits(view: GateView, *, as_json: bool) -> None:
    from mainspring.cli.screen import show_fields, show_json

    if as_json:
        show_json(view)
        return
    paused = f"paused by {view.paused_by}" if view.paused else None
    if paused is not None and view.pause_reason is not None:
        paused += f": {view.pause_reason}"
    show_fields([("limits of", "all runs of the tenant"), *limit_fields(view, paused)])
