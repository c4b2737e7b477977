"""`mainspring source`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.cli.text_formats import TimeFormat
    from mainspring.sdk.client.client import Client
    from mainspring.wire.sources import DeadMessageView, SourceView

noun = Noun("source", "Sources: what connectors read from brokers.", default="list")
_COLUMNS = (
    Column("SOURCE", least=12),
    Column("KIND", rank=2),
    Column("PARTITION", rank=4),
    Column("OFFSET", rank=5, right=True),
    Column("TAKEN", right=True),
    Column("DEAD", right=True),
    Column("LAG", right=True),
    Column("SEEN", rank=3),
    Column("PROBLEM", rank=1),
)
_DEAD_COLUMNS = (
    Column("AT"),
    Column("PARTITION", rank=3),
    Column("MESSAGE", rank=2),
    Column("REASON", least=20),
    Column("VALUE", rank=1),
)
NameArgument = Annotated[str, typer.Argument(metavar="SOURCE", help="The name of the source.")]


@noun.verb("list", "mainspring source list")
@with_list_options
def list_(limit: PageLimit = 50, cursor: PageCursor = None, *, options: ListOptions) -> None:
    """List sources: where they are, how many messages wait, and what fails."""

    def read(client: Client) -> Listing:
        page = client.sources(limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda times: [_row(one, times) for one in page.sources],
            "no sources; read some with: mainspring connect --sources FILE",
            more_pages(page.next),
        )

    show_list(options, read)


@noun.verb("dead", "mainspring source dead orders")
@with_list_options
def dead(source: NameArgument, limit: PageLimit = 50, cursor: PageCursor = None, *, options: ListOptions) -> None:
    """List the messages of a source that could not become an event or a job, newest first."""

    def read(client: Client) -> Listing:
        page = client.dead_messages(source, limit=limit, cursor=cursor)
        return Listing(
            page,
            _DEAD_COLUMNS,
            lambda times: [_dead_row(one, times) for one in page.messages],
            f"no dead messages of {source}",
            more_pages(page.next),
        )

    show_list(options, read)


@noun.verb("delete", "mainspring source delete orders")
def delete(server: Server, source: NameArgument, as_json: JsonFlag = False) -> None:
    """Delete what is stored of a source. A connector that reads it begins anew."""
    with server.connect() as client:
        done = client.delete_source(source)
    if as_json:
        show_json(done)
    else:
        show_line(f"source {done.name} is deleted")


def _row(one: SourceView, times: TimeFormat) -> tuple[str, ...]:
    return (
        one.name, one.kind, one.partition, "" if one.offset is None else str(one.offset), str(one.taken), str(one.dead),
        "?" if one.lag is None else str(one.lag), times.brief(one.seen_at), one.problem or "",
    )  # fmt: skip


def _dead_row(one: DeadMessageView, times: TimeFormat) -> tuple[str, ...]:
    return times.brief(one.at), one.partition, one.id, one.reason, " ".join(one.value[:200].split())
