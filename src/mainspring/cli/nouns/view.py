"""`mainspring view`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_fields, show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.cli.text_formats import TimeFormat
    from mainspring.sdk.client.client import Client
    from mainspring.wire.views import ViewView

noun = Noun("view", "Saved views: filters of lists on the page, shared in the tenant.", default="show")
_COLUMNS = (
    Column("VIEW", least=12),
    Column("LIST"),
    Column("FILTER", rank=1),
    Column("CHANGED", rank=2),
    Column("BY", rank=3),
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the view.")]


@noun.verb("list", "mainspring view list", "mainspring view list --of jobs")
@with_list_options
def list_(
    of: Annotated[str | None, typer.Option("--of", metavar="LIST", help="Only of this list: jobs or runs.")] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List saved views: filters and columns of lists with a name."""
    show_list(options, lambda client: _read(client, of, limit, cursor))


def _read(client: Client, of: str | None, limit: int, cursor: str | None) -> Listing:
    page = client.views(of=of, limit=limit, cursor=cursor)
    return Listing(
        page,
        _COLUMNS,
        lambda times: [_row(one, times) for one in page.views],
        nothing="no saved views",
        notes=more_pages(page.next),
    )


def _row(view: ViewView, times: TimeFormat) -> tuple[str, ...]:
    return view.name, view.of_list, _filter(view), times.brief(view.changed_at), view.changed_by


def _filter(view: ViewView) -> str:
    return " ".join(f"{name}={value}" for name, value in view.filter.items()) or "none"


@noun.verb("show", "mainspring view show failing")
def show(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a saved view."""
    with server.connect() as client:
        _show(client.view(name), as_json=as_json)


def _show(view: ViewView, *, as_json: bool) -> None:
    from mainspring.cli.text_formats import local

    if as_json:
        show_json(view)
        return
    show_fields(
        [
            ("view", view.name),
            ("list", view.of_list),
            ("filter", _filter(view)),
            ("columns", ", ".join(view.columns) or "as there is room"),
            ("changed", f"{local(view.changed_at)} by {view.changed_by}"),
        ]
    )


@noun.verb(
    "set",
    "mainspring view set failing --of jobs --filter health=failing",
    "mainspring view set today --of runs --filter w=24h --column state --column job",
)
def set_(
    server: Server,
    name: NameArgument,
    of: Annotated[str, typer.Option("--of", metavar="LIST", help="The list that it shows: jobs or runs.")],
    given: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="NAME=VALUE", help="A parameter of the list; can be repeated."),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", metavar="C", help="Show this column; can be repeated.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Save a view for all of the tenant, or replace the one of this name."""
    pairs = dict(_pair(one) for one in given or ())
    with server.connect() as client:
        _show(client.set_view(name, of, pairs, column or []), as_json=as_json)


def _pair(text: str) -> tuple[str, str]:
    from mainspring.domain.errors import InvalidInput

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput(f"{text!r} is not a filter", field="filter", expected="NAME=VALUE, such as status=FAILED")
    return name, value


@noun.verb("delete", "mainspring view delete failing")
def delete(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Delete a saved view. Jobs and runs stay as they are."""
    with server.connect() as client:
        view = client.delete_view(name)
    if as_json:
        show_json(view)
    else:
        show_line(f"the view {view.name} is deleted")
