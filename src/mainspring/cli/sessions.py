"""`mainspring sessions`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.cli.wording import Times
    from mainspring.sdk.client.client import Client
    from mainspring.wire.sessions import OpenSession

EXAMPLES = ("mainspring sessions", "mainspring sessions --full-ids")
_COLUMNS = (
    Column("SESSION", ids=True),
    Column("NAME", least=12),
    Column("ROLE", rank=1),
    Column("SINCE", rank=2),
    Column("SEEN", rank=3),
    Column("ENDS", rank=4),
)


@with_list_options
def command(options: ListOptions) -> None:
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


def _row(session: OpenSession, times: Times) -> tuple[str, ...]:
    return (
        session.session_id,
        session.name,
        session.role,
        times.brief(session.signed_in_at),
        times.brief(session.last_seen_at),
        times.brief(session.ends_at),
    )
