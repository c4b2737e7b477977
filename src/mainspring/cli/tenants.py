"""`mainspring tenants`"""

from __future__ import annotations

from datetime import UTC, datetime

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import Column, show_json, show_rows
from mainspring.cli.wording import relative

EXAMPLES = ("mainspring tenants",)
_COLUMNS = (Column("ID", right=True), Column("NAME"), Column("CREATED", whole=True))


def command(
    as_json: JsonFlag = False, url: UrlOption = None, token_file: TokenFileOption = None, data: DataOption = None
) -> None:
    """List tenants. A token of the tenant `default` lists all of them, other tokens list only their own tenant."""
    with connect(url, token_file, data) as client:
        answer = client.tenants()
    if as_json:
        show_json(answer)
        return
    now = datetime.now(UTC)
    rows = [(str(tenant.tenant_id), tenant.name, relative(tenant.created_at, now)) for tenant in answer.tenants]
    show_rows(_COLUMNS, rows, nothing="no tenants")
