"""`mainspring tokens`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import Column, show_json, show_rows
from mainspring.cli.wording import relative

if TYPE_CHECKING:
    from mainspring.wire.access import TokenView

EXAMPLES = ("mainspring tokens",)
_COLUMNS = (
    Column("TOKEN", whole=True),
    Column("NAME"),
    Column("ROLE", whole=True),
    Column("TENANTS", whole=True),
    Column("CREATED", whole=True),
    Column("VALID", whole=True),
)


def command(
    as_json: JsonFlag = False, url: UrlOption = None, token_file: TokenFileOption = None, data: DataOption = None
) -> None:
    """List the tenant's tokens: what they are for and whether they are valid. The secrets themselves are not stored."""
    with connect(url, token_file, data) as client:
        answer = client.tokens()
    if as_json:
        show_json(answer)
        return
    now = datetime.now(UTC)
    rows = [
        (
            token.token_id,
            token.name,
            token.role,
            token.tenants,
            relative(token.created_at, now),
            _valid(token, now),
        )
        for token in answer.tokens
    ]
    show_rows(_COLUMNS, rows, nothing="no tokens")


def _valid(token: TokenView, now: datetime) -> str:
    if token.revoked_at is not None:
        return f"revoked {relative(token.revoked_at, now)}"
    if token.expires_at is None:
        return "until revoked"
    words = "expired" if token.expires_at <= now else "expires"
    return f"{words} {relative(token.expires_at, now)}"
