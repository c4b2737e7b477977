"""`mainspring limit`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.limits import set_by
from mainspring.cli.screen import show_fields, show_json

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.limits import LimitDetails, LimitLineView

EXAMPLES = (
    "mainspring limit task:charge",
    "mainspring limit task:charge --set 5",
    "mainspring limit 7 --reset",
)
_SHOWN_LINES = 20


def command(
    id_or_name: Annotated[
        str,
        typer.Argument(
            metavar="LIMIT",
            help="The id or the name of the limit, or a part of the name.",
            autocompletion=completing.limits,
        ),
    ],
    number: Annotated[
        int | None, typer.Option("--set", metavar="N", help="At most N runs at once, whatever jobs and tasks declare.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Return to what jobs and tasks declare.")] = False,
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            metavar="priority",
            autocompletion=completing.words("priority"),
            help="End strict order, until a job declares it again.",
        ),
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show a limit: who has its slots and how many runs wait. Or change it."""
    from mainspring.domain.errors import InvalidInput

    if reset and number is not None:
        raise InvalidInput("--set and --reset cannot be combined", field="limit", hint="give one of them")
    with connect(url, token_file, data) as client:
        limit_id = _find(client, id_or_name)
        if order is not None and number is None and not reset:
            before = client.limit(limit_id).limit
            number = before.limit if before.pinned else None
        if reset or order is not None or number is not None:
            found = client.set_limit(limit_id, number, order=order)
        else:
            found = client.limit(limit_id)
    if as_json:
        show_json(found)
    else:
        show_fields(_fields(found))


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
