"""`mainspring session`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.find_id import choose
from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.cli.text_formats import TimeFormat
    from mainspring.sdk.client.client import Client
    from mainspring.wire.sessions import OpenSession

noun = Noun("session", "Sessions: browsers that are signed in to the dashboard.")
_COLUMNS = (
    Column("SESSION", ids=True),
    Column("NAME", least=12),
    Column("ROLE", rank=1),
    Column("SINCE", rank=2),
    Column("SEEN", rank=3),
    Column("ENDS", rank=4),
)


@noun.verb("list", "mainspring session list", "mainspring session list --full-ids")
@with_list_options
def list_(options: ListOptions) -> None:
    """List the browsers that are signed in with tokens of the tenant: as whom, since when, and when that ends."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.sessions()
    return Listing(
        answer,
        _COLUMNS,
        lambda times: [_row(one, times) for one in answer.sessions],
        nothing="no sessions",
        notes=["there are more sessions than a list shows; the newest come first"] if answer.more else [],
    )


def _row(session: OpenSession, times: TimeFormat) -> tuple[str, ...]:
    return (
        session.session_id,
        session.name,
        session.role,
        times.brief(session.signed_in_at),
        times.brief(session.last_seen_at),
        times.brief(session.ends_at),
    )


@noun.verb("end", "mainspring session end 6f0a8b11")
def end(
    server: Server,
    session: Annotated[
        str, typer.Argument(metavar="SESSION_ID", help="The session's id, as shown by `mainspring session list`.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Sign a browser out, at once. Its token is still valid; `mainspring token revoke` keeps its owner out."""
    with server.connect() as client:
        view = client.end_session(_session_id(client, session))
    if as_json:
        show_json(view)
    else:
        show_line(f"session {view.session_id} of {view.name} has ended")


def _session_id(client: Client, session: str) -> str:
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(session) is not None:
        return session
    return choose(session, (one.session_id for one in client.sessions().sessions), "session")
