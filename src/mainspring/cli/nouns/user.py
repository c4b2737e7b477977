"""`mainspring user`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.open import PrintFlag
from mainspring.cli.screen import say, show_fields, show_json, show_line
from mainspring.cli.table import Column
from mainspring.cli.text_formats import local

if TYPE_CHECKING:
    from mainspring.cli.text_formats import TimeFormat
    from mainspring.sdk.client.client import Client
    from mainspring.wire.users import UserLink, UserTenant, UserView

noun = Noun("user", "People: who may sign in with mail address and password.", default="show")
_COLUMNS = (
    Column("USER", least=16),
    Column("NAME", rank=2, least=10),
    Column("STATE", rank=1),
    Column("TENANTS", rank=3),
)
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The mail address of the user, or the id.")]
RoleOption = Annotated[
    str,
    typer.Option(
        metavar="ROLE",
        help="admin: everything in the tenant. operator: read, pause, cancel, run, retry, replay, backfill, drain, set "
        "limits. submitter: read, create jobs, change its own. viewer: read all of it.",
    ),
]
TenantOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="In this tenant. Needs an admin of the tenant default.", show_default="yours"),
]


@noun.verb("list", "mainspring user list")
@with_list_options
def list_(options: ListOptions) -> None:
    """List the people of the tenant, and invitations that were not accepted yet."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.users()
    notes = ["there are others; only the first are listed"] if answer.more else []
    return Listing(answer, _COLUMNS, lambda times: [_row(one, times) for one in answer.users], nothing="no users",
                   notes=notes)  # fmt: skip


def _row(user: UserView, times: TimeFormat) -> tuple[str, ...]:
    return user.mail, user.name, user.state, ", ".join(_place(one, times) for one in user.tenants)


def _place(place: UserTenant, times: TimeFormat) -> str:
    until = place.invited_until
    if until is None:
        return f"{place.role} of {place.tenant}"
    expired = "expired" if until <= times.now else "expires"
    return f"{place.role} of {place.tenant} (invited, {expired} {times.brief(until)})"


@noun.verb("show", "mainspring user show ada@example.com")
def show(server: Server, user: UserArgument, as_json: JsonFlag = False) -> None:
    """Show a user: name, state, and the role in each tenant."""
    with server.connect() as client:
        view = client.user(user)
    if as_json:
        show_json(view)
        return
    tenants = [f"{one.role} of {one.tenant}" + (" (invited)" if one.invited_until else "") for one in view.tenants]
    show_fields(
        [
            ("user", view.mail),
            ("name", view.name),
            ("id", view.user_id),
            ("state", view.state),
            ("created", local(view.created_at)),
            ("tenants", ", ".join(tenants)),
        ]
    )


@noun.verb(
    "invite",
    "mainspring user invite ada@example.com --name Ada --role operator",
    "mainspring user invite ada@example.com --name Ada --role admin --tenant acme",
)
def invite(
    server: Server,
    mail: Annotated[str, typer.Argument(metavar="MAIL", help="The mail address of the person.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="The name of the person. Shown in lists and in the audit.")],
    role: RoleOption,
    tenant: TenantOption = None,
    anyway: PrintFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Invite a person, and print the link. It works once, within seven days: send it to the person."""
    _check_screen(anyway)
    with server.connect() as client:
        made = client.invite_user(mail, name, role, tenant=tenant)
        _show_link(client, made, "choose a password there", as_json=as_json)


@noun.verb("role", "mainspring user role ada@example.com --role viewer")
def role(
    server: Server,
    user: UserArgument,
    role: RoleOption,
    tenant: TenantOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change what a person may do in the tenant, at once. Personal tokens that exceed the new role are revoked."""
    with server.connect() as client:
        view = client.set_user_role(user, role, tenant=tenant)
    if as_json:
        show_json(view)
    else:
        show_line(f"user {view.mail}: " + ", ".join(f"{one.role} of {one.tenant}" for one in view.tenants))


@noun.verb("disable", "mainspring user disable ada@example.com")
def disable(server: Server, user: UserArgument, as_json: JsonFlag = False) -> None:
    """Disable a user. Sessions and personal tokens end at once, in all tenants."""
    with server.connect() as client:
        _show_done(client.disable_user(user), "is disabled", as_json=as_json)


@noun.verb("enable", "mainspring user enable ada@example.com")
def enable(server: Server, user: UserArgument, as_json: JsonFlag = False) -> None:
    """Enable a user again. Personal tokens stay revoked."""
    with server.connect() as client:
        _show_done(client.enable_user(user), "is enabled", as_json=as_json)


@noun.verb("reset", "mainspring user reset ada@example.com")
def reset(server: Server, user: UserArgument, anyway: PrintFlag = False, as_json: JsonFlag = False) -> None:
    """Print a link with which a user chooses a new password. It works once, within a day."""
    _check_screen(anyway)
    with server.connect() as client:
        _show_link(client, client.reset_password(user), "choose a new password there", as_json=as_json)


@noun.verb("remove", "mainspring user remove ada@example.com")
def remove(server: Server, user: UserArgument, as_json: JsonFlag = False) -> None:
    """Remove a user from your tenant; with a token of the tenant default from all. What the user has created stays."""
    with server.connect() as client:
        _show_done(client.remove_user(user), "is removed", as_json=as_json)


def _check_screen(anyway: bool) -> None:
    """Before anything is done: the link would be in a file or a pipe."""
    if anyway or sys.stdout.isatty():
        return
    from mainspring.domain.errors import InvalidInput

    raise InvalidInput(
        "stdout is no terminal, and whoever reads the link there can sign in as the user",
        code="not_a_terminal",
        field="print",
        hint="give --print if that is what you want",
    )


def _show_link(client: Client, made: UserLink, what: str, *, as_json: bool) -> None:
    url = f"{client.connection.addresses[0]}{made.path}"
    if as_json:
        show_json({"user_id": made.user_id, "mail": made.mail, "url": url, "expires_at": made.expires_at})
        return
    show_line(url)
    say(f"send it to {made.mail}: {what}; it works once, until {local(made.expires_at)}")


def _show_done(view: UserView, what: str, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
    else:
        show_line(f"user {view.mail} {what}")
