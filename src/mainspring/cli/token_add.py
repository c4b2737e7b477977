"""`mainspring token-add`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.wording import local

EXAMPLES = (
    "mainspring token-add ci --role admin --expires-in 30d",
    "(umask 077; mainspring token-add web --role worker > worker-token)",
    "(umask 077; mainspring token-add pool --role worker --all-tenants > token)",
    "(umask 077; mainspring token-add ops --role admin --tenant acme > acme-token)",
)


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for. Shown in lists.")],
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE",
            help="admin: everything in your tenant. viewer: read all of it. worker: only what a worker process needs.",
        ),
    ],
    all_tenants: Annotated[
        bool,
        typer.Option(
            "--all-tenants",
            help="For shared workers, which take runs of all tenants fairly and run with --sandbox. Needs a token of "
            "the tenant default.",
            show_default=False,
        ),
    ] = False,
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Create the token for this tenant, e.g. if it lost its own. Needs a token of the tenant default.",
            show_default="yours",
        ),
    ] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long the token is valid, such as 12h or 30d.", show_default="until revoked"
        ),
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Create a token and print it. It is not shown again. Redirect it into a file."""
    with connect(url, token_file, data) as client:
        made = client.add_token(
            name, role, tenants="all" if all_tenants else None, tenant=tenant, expires_in=expires_in
        )
    if as_json:
        show_json(made)
        return
    show_line(made.token)
    until = "until it is revoked" if made.expires_at is None else f"until {local(made.expires_at)}"
    whose = "every tenant" if made.tenant is None else f"tenant {made.tenant}"
    say(f"token {made.token_id} ({made.role} of {whose}), valid {until}; it is not shown again")
