"""`mainspring token`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.find_id import choose
from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.table import Column
from mainspring.cli.text_formats import local

if TYPE_CHECKING:
    from mainspring.cli.text_formats import TimeFormat
    from mainspring.sdk.client.client import Client
    from mainspring.wire.access import TokenView

noun = Noun("token", "Tokens: who may call the server, and as what.")
_COLUMNS = (
    Column("TOKEN", ids=True),
    Column("NAME", least=12),
    Column("ROLE", rank=1),
    Column("TENANTS", rank=3, least=8),
    Column("CREATED", rank=4),
    Column("VALID", rank=2),
)


@noun.verb("list", "mainspring token list", "mainspring token list --full-ids")
@with_list_options
def list_(options: ListOptions) -> None:
    """List the tenant's tokens: what they are for and whether they are valid. The secrets themselves are not stored."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.tokens()
    return Listing(answer, _COLUMNS, lambda times: [_row(token, times) for token in answer.tokens], nothing="no tokens")


def _row(token: TokenView, times: TimeFormat) -> tuple[str, ...]:
    return (
        token.token_id,
        token.name,
        token.role,
        token.tenants,
        times.brief(token.created_at),
        _valid(token, times),
    )


def _valid(token: TokenView, times: TimeFormat) -> str:
    if token.revoked_at is not None:
        return f"revoked {times.brief(token.revoked_at)}"
    if token.expires_at is None:
        return "until revoked"
    words = "expired" if token.expires_at <= times.now else "expires"
    return f"{words} {times.brief(token.expires_at)}"


@noun.verb(
    "add",
    "mainspring token add ci --role admin --expires-in 30d",
    "mainspring token add on-call --role operator",
    "mainspring token add ci --role submitter --expires-in 90d",
    "(umask 077; mainspring token add web --role worker > worker-token)",
    "mainspring token add payments --role operator --queue payments --no-payloads",
    "(umask 077; mainspring token add pool --role worker --all-tenants > token)",
    "(umask 077; mainspring token add ops --role admin --tenant acme > acme-token)",
)
def add(
    server: Server,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for. Shown in lists.")],
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE",
            help="admin: everything in your tenant. operator: read, pause, cancel, run, retry, replay, backfill, "
            "drain, set limits. submitter: read, create jobs, change its own. viewer: read all of it. metrics: only "
            "/metrics. worker: only what workers need.",
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
    queue: Annotated[
        list[str] | None, typer.Option("--queue", metavar="Q", help="Only this queue; repeatable.", show_default=False)
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="T", help="Only this task; repeatable.", show_default=False)
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="Only jobs with this label; repeatable.", show_default=False),
    ] = None,
    no_payloads: Annotated[
        bool,
        typer.Option(
            "--no-payloads", help="Hide payloads, results, variables, headers and output.", show_default=False
        ),
    ] = False,
    address: Annotated[
        list[str] | None,
        typer.Option(
            "--address", metavar="NET", help="Accepted only from this network; repeatable.", show_default=False
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a token and print it. It is not shown again. Redirect it into a file."""
    with server.connect() as client:
        made = client.add_token(
            name, role, tenants="all" if all_tenants else None, tenant=tenant, expires_in=expires_in,
            queues=queue or None, tasks=task or None, labels=_labels(label), payloads=False if no_payloads else None,
            addresses=address or None,
        )  # fmt: skip
    if as_json:
        show_json(made)
        return
    show_line(made.token)
    until = "until it is revoked" if made.expires_at is None else f"until {local(made.expires_at)}"
    whose = "every tenant" if made.tenant is None else f"tenant {made.tenant}"
    say(f"token {made.token_id} ({made.role} of {whose}), valid {until}; it is not shown again")


def _labels(given: list[str] | None) -> dict[str, str] | None:
    for label in given or ():
        if "=" not in label:
            raise typer.BadParameter(f"{label!r} is not a label", param_hint="--label K=V")
    return dict(label.split("=", 1) for label in given) if given else None


@noun.verb("revoke", "mainspring token revoke 6f0a8b11")
def revoke(
    server: Server,
    token: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN_ID",
            help="The token's id, as shown by `mainspring token list`.",
            autocompletion=completing.tokens,
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Revoke a token. It is rejected from now on. The last admin token of a tenant cannot be revoked."""
    with server.connect() as client:
        view = client.revoke_token(_token_id(client, token))
    if as_json:
        show_json(view)
    else:
        show_line(f"token {view.name} ({view.token_id}) is revoked")


def _token_id(client: Client, token: str) -> str:
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(token) is not None:
        return token
    return choose(token, (one.token_id for one in client.tokens().tokens), "token")
