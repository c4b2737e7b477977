"""`mainspring limits`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.limits import LimitView

EXAMPLES = ("mainspring limits", "mainspring limits --search charge --watch")
_COLUMNS = (
    Column("ID", right=True),
    Column("LIMIT", least=12),
    Column("AT ONCE", right=True),
    Column("IN USE", rank=1, right=True),
    Column("HELD", right=True),
    Column("KEYS", rank=3, right=True),
    Column("SET BY", rank=2),
)


@with_list_options
def command(
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
