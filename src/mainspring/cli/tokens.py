"""`mainspring tokens`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.cli.wording import Times
    from mainspring.sdk.client.client import Client
    from mainspring.wire.access import TokenView

EXAMPLES = ("mainspring tokens", "mainspring tokens --full-ids")
_COLUMNS = (
    Column("TOKEN", ids=True),
    Column("NAME", least=12),
    Column("ROLE", rank=1),
    Column("TENANTS", rank=3, least=8),
    Column("CREATED", rank=4),
    Column("VALID", rank=2),
)


@with_list_options
def command(options: ListOptions) -> None:
    """List the tenant's tokens: what they are for and whether they are valid. The secrets themselves are not stored."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.tokens()
    return Listing(answer, _COLUMNS, lambda times: [_row(token, times) for token in answer.tokens], nothing="no tokens")


def _row(token: TokenView, times: Times) -> tuple[str, ...]:
    return (
        token.token_id,
        token.name,
        token.role,
        token.tenants,
        times.brief(token.created_at),
        _valid(token, times),
    )


def _valid(token: TokenView, times: Times) -> str:
    if token.revoked_at is not None:
        return f"revoked {times.brief(token.revoked_at)}"
    if token.expires_at is None:
        return "until revoked"
    words = "expired" if token.expires_at <= times.now else "expires"
    return f"{words} {times.brief(token.expires_at)}"
