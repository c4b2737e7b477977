"""`mainspring event`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_fields, show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.cli.text_formats import TimeFormat
    from mainspring.sdk.client.client import Client
    from mainspring.wire.events import EventCause, EventRow

noun = Noun("event", "Events: what applications emit, and what it starts.", default="show")
_COLUMNS = (
    Column("EVENT", least=12),
    Column("NAME", least=12),
    Column("KEY", rank=2),
    Column("STORED", rank=1),
    Column("JOBS", rank=3, right=True),
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the event.")]
EMIT_EXAMPLES = (
    "mainspring event emit order.paid --key 42 --payload '{\"total\": 120}'",
    "mainspring event emit order.paid --id evt-1",
)


@noun.verb("emit", *EMIT_EXAMPLES)
def emit(
    server: Server,
    name: NameArgument,
    key: Annotated[
        str | None, typer.Option("--key", metavar="K", help="What it happened to, such as the number of an order.")
    ] = None,
    event_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The same id is stored once.", show_default="a new one"),
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON", help="A JSON object.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Emit an event. Jobs and workflows that start on it run, and steps that wait for it continue."""
    from mainspring.cli.task_options import payload_of

    given = None if payload is None else payload_of(payload, [])
    with server.connect() as client:
        done = client.emit(name, given, key=key, id=event_id)
    if as_json:
        show_json(done)
    else:
        show_line(f"event {done.id} {'was stored before; nothing was changed' if done.repeated else 'is stored'}")


@noun.verb("list", "mainspring event list", "mainspring event list --name order.paid --key 42")
@with_list_options
def list_(
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only those with this name.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="K", help="Only those with this key; needs --name.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="T", help="Only those that were stored at or after T.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="T", help="Only those that were stored before T.")
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List events, newest first."""

    def read(client: Client) -> Listing:
        page = client.emitted_events(name=name, key=key, since=since, until=until, limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda times: [_row(one, times) for one in page.events],
            "no events; emit one with: mainspring emit NAME",
            more_pages(page.next),
        )

    show_list(options, read)


def _row(event: EventRow, times: TimeFormat) -> tuple[str, ...]:
    return event.id, event.name, event.key or "", times.brief(event.at), str(event.caused) if event.matched else "..."


@noun.verb("show", "mainspring event show evt-1")
def show(
    server: Server,
    event_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the event.")],
    as_json: JsonFlag = False,
) -> None:
    """Show an event with its payload, and the runs that it has started."""
    import msgspec

    from mainspring.cli.text_formats import local

    with server.connect() as client:
        view = client.emitted_event(event_id)
    if as_json:
        show_json(view)
        return
    show_fields(
        [
            ("event", view.id),
            ("name", view.name),
            ("key", view.key),
            ("stored", f"{local(view.at)}{f' by {view.created_by}' if view.created_by else ''}"),
            ("payload", None if view.payload is None else msgspec.json.encode(view.payload).decode()),
            *((f"job {cause.job_id}", _caused(cause)) for cause in view.causes),
            ("jobs", None if view.causes else "none" if view.matched else "not known yet"),
        ]
    )


@noun.verb("test", "mainspring event test order.paid --if 'payload.total > 100'")
def test(
    server: Server,
    name: NameArgument,
    condition: Annotated[str, typer.Option("--if", metavar="CEL", help="The condition.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100, help="How many of the newest.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Try a condition with the newest stored events of a name: which of them would start a run."""
    from mainspring.cli.text_formats import local

    with server.connect() as client:
        done = client.test_condition(name, condition, limit=limit)
    if as_json:
        show_json(done)
        return
    for one in done.events:
        answer = "yes" if one.matches else "no" if one.error is None else f"no: {one.error}"
        show_line(f"{one.id}  {local(one.at)}  {one.key or '-'}  {answer}")
    say(f"{done.matched} of {done.tested} events match")


def _caused(cause: EventCause) -> str:
    from mainspring.cli.text_formats import local

    if cause.run_id is not None:
        return f"run {cause.run_id}"
    return cause.reason or f"starts by {local(cause.starts_by)}"
