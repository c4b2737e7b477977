"""`mainspring tenants`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring tenants", "mainspring tenants --utc")
_COLUMNS = (Column("ID", right=True), Column("NAME", least=12), Column("CREATED", rank=1))


@with_list_options
def command(options: ListOptions) -> None:
    """List tenants. A token of the tenant `default` lists all of them, other tokens list only their own tenant."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.tenants()
    return Listing(
        answer,
        _COLUMNS,
        lambda times: [(str(one.tenant_id), one.name, times.brief(one.created_at)) for one in answer.tenants],
        nothing="no tenants",
    )
