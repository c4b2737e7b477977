"""The list commands: --utc, --full-ids, --watch, --interval and --json, which mean the same in all of them;
and --limit and --cursor of those that have pages."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.screen import cell, say, show_json, show_rows, table_texts
from mainspring.cli.table import Column
from mainspring.cli.text_formats import TimeFormat

if TYPE_CHECKING:
    from rich.text import Text

    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.core import Call
    from mainspring.sdk.client.searches import PageT as SearchT

_PANEL = "Output"
UtcFlag = Annotated[
    bool,
    typer.Option("--utc", help="Absolute times in UTC.", rich_help_panel=_PANEL, show_default=False),
]
FullIdsFlag = Annotated[
    bool,
    typer.Option(
        "--full-ids",
        help="Whole ids. In a pipe or a file they are always whole.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
WatchFlag = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Show it again and again until Ctrl-C.", rich_help_panel=_PANEL),
]
IntervalOption = Annotated[
    str | None,
    typer.Option(
        "--interval",
        metavar="D",
        help="How often with --watch. Default: 2s.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
CreatedBy = Annotated[
    str | None,
    typer.Option(
        "--created-by", metavar="TOKEN", help="Only what the token with this name or id created.", show_default=False
    ),
]
PageLimit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many, at most 1000.")]
PageCursor = Annotated[
    str | None, typer.Option("--cursor", metavar="C", help="Continue after the previous page.", show_default=False)
]
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "utc": (UtcFlag, False),
    "full_ids": (FullIdsFlag, False),
    "watch": (WatchFlag, False),
    "interval": (IntervalOption, None),
    "as_json": (JsonFlag, False),
}
_EVERY = 2.0


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What the reader of a list chose."""

    utc: bool = False
    full_ids: bool = False
    watch: bool = False
    interval: str | None = None
    as_json: bool = False
    server: Server = field(default_factory=Server)


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server answered, and its rows with whole ids. `notes` are printed on stderr, `nothing` if there are no
    rows."""

    answer: Any
    columns: Sequence[Column]
    rows: Callable[[TimeFormat], Iterable[Sequence[str]]]
    nothing: str
    notes: Sequence[str] = ()


def with_list_options(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator for a command with the parameter `options: ListOptions`: gives it the options above instead.

    Typer reads the signature of a command, so the options are added there.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != "options":
            parameters.append(parameter)
            continue
        for name, (annotation, default) in _OPTIONS.items():
            parameters.append(parameter.replace(name=name, annotation=annotation, default=default))
        parameters.append(parameter.replace(name="server", annotation=Server, default=parameter.empty))

    @wraps(command)
    def with_options(**values: Any) -> None:
        options = ListOptions(**{name: values.pop(name) for name in (*_OPTIONS, "server")})
        command(options=options, **values)

    shown: Any = with_options
    shown.__signature__ = signature.replace(
        parameters=[each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    return with_options


def search_list(client: Client, options: ListOptions, call: Call[SearchT]) -> SearchT:
    """A page of a list. Where the server ends a search before its end, this goes on, and says on stderr how far it has
    looked: at once, and then each two seconds."""
    told = 0.0

    def tell(looked_to: datetime, found: int) -> None:
        nonlocal told
        if not options.watch and monotonic() - told >= _EVERY:
            told = monotonic()
            say(f"looked back to {looked_to.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {found} found; looking on")

    return client.search(call, tell)


def more_pages(cursor: str | None) -> list[str]:
    return [] if cursor is None else [f"more: repeat with --cursor {cursor}"]


def show_list(options: ListOptions, read: Callable[[Client], Listing]) -> None:
    """Read a list and show it, once or again and again."""
    from mainspring.domain.errors import InvalidInput

    client = options.server.connect()
    if options.interval is not None and not options.watch:
        raise InvalidInput("--interval needs --watch", field="interval", hint="add --watch")
    with client:
        if options.watch:
            raise typer.Exit(_watch(client, options, read))
        listing = read(client)
    _show(listing, options)
    if not options.as_json:
        for note in listing.notes:
            say(note)


def _watch(client: Client, options: ListOptions, read: Callable[[Client], Listing]) -> int:
    from mainspring.cli.watching import parse_interval, repeat, watch

    interval = _EVERY if options.interval is None else parse_interval(options.interval)
    if options.as_json or not sys.stdout.isatty():
        return repeat(lambda: read(client), lambda listing: _show(listing, options), interval)
    return watch("This list", lambda: read(client), lambda listing, width: _draw(listing, options, width), interval)


def _show(listing: Listing, options: ListOptions) -> None:
    if options.as_json:
        show_json(listing.answer)
    else:
        rows = listing.rows(_times(options))
        show_rows(listing.columns, rows, nothing=listing.nothing, full_ids=options.full_ids)
    if options.watch:
        sys.stdout.write("" if options.as_json else "\n")
        sys.stdout.flush()


def _draw(listing: Listing, options: ListOptions, width: int) -> Sequence[Text]:
    lines = table_texts(listing.columns, listing.rows(_times(options)), width, full_ids=options.full_ids)
    if len(lines) > 1:
        return lines
    return [cell(listing.nothing)]


def _times(options: ListOptions) -> TimeFormat:
    return TimeFormat(datetime.now(UTC), options.utc)
