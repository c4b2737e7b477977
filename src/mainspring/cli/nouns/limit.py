"""`mainspring limit`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_fields, show_json
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.limits import LimitDetails, LimitLineView, LimitView

noun = Noun("limit", "Limits: how many runs of a job, a task or a key run at once.", default="show-or-set")
_COLUMNS = (
    Column("ID", right=True),
    Column("LIMIT", least=12),
    Column("AT ONCE", right=True),
    Column("IN USE", rank=1, right=True),
    Column("HELD", right=True),
    Column("KEYS", rank=3, right=True),
    Column("SET BY", rank=2),
)
_SHOWN_LINES = 20
LimitArgument = Annotated[
    str,
    typer.Argument(
        metavar="LIMIT",
        help="The id or the name of the limit, or a part of the name.",
        autocompletion=completing.limits,
    ),
]
OrderOption = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="priority",
        autocompletion=completing.words("priority"),
        help="End strict order, until a job declares it again.",
    ),
]


@noun.verb("list", "mainspring limit list", "mainspring limit list --search charge --watch")
@with_list_options
def list_(
    search: Annotated[
        str | None, typer.Option("--search", metavar="TEXT", help="A part of the name.", show_default=False)
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List limits: how many runs at once, how many have a slot, and how many wait for one."""

    def read(client: Client) -> Listing:
        page = client.limits(q=search, limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda _: [_row(one) for one in page.limits],
            "no limits; a job declares one with --concurrency",
            more_pages(page.next),
        )

    show_list(options, read)


def _row(one: LimitView) -> tuple[str, ...]:
    return (
        str(one.limit_id),
        one.name,
        one.rate or ("any" if one.limit is None else f"{one.limit:,}"),
        f"{one.in_use:,}",
        f"{one.held:,}",
        f"{one.keys:,}",
        set_by(one),
    )


def set_by(one: LimitView) -> str:
    if one.pinned:
        return "hand" if one.declared is None else f"hand, declared {one.declared:,}"
    return "declared, strict" if one.order == "strict" else "declared"


@noun.verb("show", "mainspring limit show task:charge")
def show(server: Server, id_or_name: LimitArgument, as_json: JsonFlag = False) -> None:
    """Show a limit: who has its slots and how many runs wait."""
    with server.connect() as client:
        _show(client.limit(_find(client, id_or_name)), as_json=as_json)


@noun.verb("set", "mainspring limit set task:charge 5", "mainspring limit set task:charge --order priority")
def set_(
    server: Server,
    id_or_name: LimitArgument,
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", help="At most N runs at once, whatever jobs and tasks declare.")
    ] = None,
    order: OrderOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Set how many runs a limit admits at once, or end its strict order."""
    from mainspring.domain.errors import InvalidInput

    if number is None and order is None:
        raise InvalidInput("no number is given", field="limit", hint="such as: mainspring limit set task:charge 5")
    with server.connect() as client:
        _show(_changed(client, _find(client, id_or_name), number, order), as_json=as_json)


@noun.verb("reset", "mainspring limit reset task:charge")
def reset(server: Server, id_or_name: LimitArgument, as_json: JsonFlag = False) -> None:
    """Return a limit to what jobs and tasks declare."""
    with server.connect() as client:
        _show(client.set_limit(_find(client, id_or_name), None), as_json=as_json)


@noun.verb("show-or-set", "mainspring limit task:charge", "mainspring limit set task:charge 5", listed=False)
def show_or_set(
    server: Server,
    id_or_name: LimitArgument,
    number: Annotated[
        int | None, typer.Option("--set", metavar="N", help="At most N runs at once, whatever jobs and tasks declare.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Return to what jobs and tasks declare.")] = False,
    order: OrderOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a limit: who has its slots and how many runs wait. Or change it."""
    from mainspring.domain.errors import InvalidInput

    if reset and number is not None:
        raise InvalidInput("--set and --reset cannot be combined", field="limit", hint="give one of them")
    with server.connect() as client:
        limit_id = _find(client, id_or_name)
        if reset:
            found = client.set_limit(limit_id, None, order=order)
        elif order is not None or number is not None:
            found = _changed(client, limit_id, number, order)
        else:
            found = client.limit(limit_id)
    _show(found, as_json=as_json)


def _changed(client: Client, limit_id: int, number: int | None, order: str | None) -> LimitDetails:
    """Without a number, one that was set by hand stays."""
    if number is None:
        before = client.limit(limit_id).limit
        number = before.limit if before.pinned else None
    return client.set_limit(limit_id, number, order=order)


def _show(details: LimitDetails, *, as_json: bool) -> None:
    if as_json:
        show_json(details)
    else:
        show_fields(_fields(details))


def _find(client: Client, text: str) -> int:
    """The id of the limit with this id or name, or whose name contains the text."""
    from mainspring.domain.errors import InvalidInput, NotFound

    if text.isascii() and text.isdigit():
        return int(text)
    page = client.limits(q=text, limit=1000)
    exact = [one for one in page.limits if one.name == text]
    found = exact or page.limits
    if not found:
        raise NotFound(f"there is no limit {text!r}", hint="see GET /v1/limits")
    if len(found) > 1:
        names = ", ".join(one.name for one in found[:5])
        raise InvalidInput(
            f"several limits match {text!r}: {names}", field="limit", hint="give the whole name, or the id"
        )
    return found[0].limit_id


def _fields(details: LimitDetails) -> list[tuple[str, str | None]]:
    one = details.limit
    rows: list[tuple[str, str | None]] = [
        ("limit", one.name),
        ("id", str(one.limit_id)),
        ("at once", "any number" if one.limit is None else f"{one.limit:,}"),
        ("set by", set_by(one)),
        ("in use", f"{one.in_use:,}"),
        ("held", f"{one.held:,}"),
        ("keys", f"{one.keys:,}"),
    ]
    shown = details.lines[:_SHOWN_LINES]
    rows += [("lines" if place == 0 else "", _line(line)) for place, line in enumerate(shown)]
    if one.keys > len(shown):
        rows.append(("", f"and {one.keys - len(shown):,} more"))
    return rows


def _line(line: LimitLineView) -> str:
    """Such as: "a1": 1 in use, 3 held (run 018f...)."""
    runs = ", ".join(line.runs[:3]) + (", ..." if line.in_use > 3 else "")
    words = f"{line.in_use:,} in use, {line.held:,} held"
    return (f"{line.key}: " if line.key else "") + words + (f" (run {runs})" if runs else "")
