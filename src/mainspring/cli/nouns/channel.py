"""`mainspring channel`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_fields, show_json, show_line
from mainspring.cli.settings_json import read_settings, secret_from
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.channels import ChannelView

noun = Noun("channel", "Channels: where people are told what has happened.", default="show")
_COLUMNS = (Column("CHANNEL", least=12), Column("KIND", rank=1), Column("TO", rank=2), Column("SECRETS", rank=3))
_OPTIONS = {  # of the fields that a kind needs
    "kind": "--kind", "url": "--address URL", "host": "--mail-host H", "from": "--from A", "to": "--to A",
    **dict.fromkeys(("webhook_url", "secret", "bot_token", "routing_key", "api_key", "auth_token"), "--secret-file F"),
}  # fmt: skip
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the channel.")]


@noun.verb("list", "mainspring channel list", "mainspring channel list --json")
@with_list_options
def list_(limit: PageLimit = 50, cursor: PageCursor = None, *, options: ListOptions) -> None:
    """List channels: where people are told what has happened."""

    def read(client: Client) -> Listing:
        page = client.channels(limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda _: [(one.name, one.kind, _place(one), ", ".join(one.secrets)) for one in page.channels],
            "no channels; create one with mainspring channel set",
            more_pages(page.next),
        )

    show_list(options, read)


def _place(one: ChannelView) -> str:
    return ", ".join(one.to) or one.url or one.chat_id or one.host or ""


@noun.verb("show", "mainspring channel show oncall", "mainspring channel show oncall --json")
def show(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a channel. Values of secret fields are not shown."""
    with server.connect() as client:
        _show(client.channel(name), as_json=as_json)


def _show(view: ChannelView, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
        return
    show_fields(
        [
            ("channel", view.name), ("kind", view.kind), ("version", str(view.version)),
            ("description", view.description), ("url", view.url), ("host", view.host),
            ("port", None if view.port is None else str(view.port)), ("tls", view.tls), ("user", view.user),
            ("from", view.sender), ("to", ", ".join(view.to) or None), ("chat", view.chat_id),
            ("region", view.region), ("account", view.account_sid), ("secrets", ", ".join(view.secrets) or None),
            ("log lines", None if view.log_lines is None else str(view.log_lines)),
        ]
    )  # fmt: skip


@noun.verb(
    "set",
    "mainspring channel set w --kind webhook --address https://a.de --secret-file s",
    "mainspring channel set chat --kind slack --secret-file slack-url",
    "mainspring channel set mail --file channel.json",
)
def set_(
    server: Server,
    name: NameArgument,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="K",
            help="mail, webhook, slack, teams, discord, telegram, pagerduty, opsgenie, twilio or apprise.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="URL", help="The URL of a webhook, or of a relay in place of a service."),
    ] = None,
    secret_file: Annotated[
        str | None,
        typer.Option(
            "--secret-file",
            metavar="F",
            help="A file with the secret of the kind: the key of a webhook, the address of a chat, a password. "
            "- is stdin.",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("--mail-host", metavar="H", help="The mail server.")] = None,
    user: Annotated[str | None, typer.Option("--mail-user", metavar="U", help="The user at the mail server.")] = None,
    sender: Annotated[str | None, typer.Option("--from", metavar="A", help="The sender of mail or SMS.")] = None,
    to: Annotated[list[str] | None, typer.Option("--to", metavar="A", help="A recipient; can be repeated.")] = None,
    log_lines: Annotated[
        int | None,
        typer.Option("--log-lines", metavar="N", help="So many last lines of the output of a run are in messages."),
    ] = None,
    description: Annotated[str | None, typer.Option("--description", metavar="TEXT", help="For people.")] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="F", help="All settings as JSON, as in PUT /v1/channels; - is stdin."),
    ] = None,
    if_version: Annotated[
        int | None, typer.Option("--if-version", metavar="N", help="Only if the channel has this version.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a channel, or replace its settings. A secret that is left out keeps its value."""
    given: dict[str, Any] = {
        "kind": kind, "url": address, "host": host, "user": user, "from": sender, "to": to, "description": description,
        "log_lines": log_lines,
    }  # fmt: skip
    given = {field: value for field, value in given.items() if value is not None}
    settings = read_settings(file, given, ("kind",))
    from mainspring.domain.errors import InvalidInput

    if secret_file is not None:
        field, value = secret_from(secret_file, str(settings.get("kind", "")))
        settings[field] = value
    with server.connect() as client:
        try:
            view = client.set_channel(name, settings, if_version=if_version)
        except InvalidInput as error:
            if error.hint is None and error.field is not None and error.field not in settings:
                option = _OPTIONS.get(error.field, f"--file F with {error.field}")
                error.hint = f"give {option}"
            raise
    _show(view, as_json=as_json)


@noun.verb("test", "mainspring channel test oncall")
def test(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Send a test message to a channel, and say whether it was taken."""
    with server.connect() as client:
        done = client.test_channel(name)
    if as_json:
        show_json(done)
    elif done.sent:
        show_line(f"the channel {done.channel} took a test message in {done.seconds:g} s")
    else:
        show_line(f"the channel {done.channel} did not take a test message: {done.error}")
    if not done.sent:
        raise typer.Exit(1)


@noun.verb("delete", "mainspring channel delete oncall")
def delete(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Delete a channel that no rule uses."""
    with server.connect() as client:
        view = client.delete_channel(name)
    if as_json:
        show_json(view)
    else:
        show_line(f"the channel {view.name} is deleted")
