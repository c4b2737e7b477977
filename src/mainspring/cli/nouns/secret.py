"""`mainspring secret`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_fields, show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.cli.text_formats import TimeFormat
    from mainspring.sdk.client.client import Client
    from mainspring.wire.secrets import SecretView

noun = Noun("secret", "Secrets: values that only workers get.", default="show")
_COLUMNS = (
    Column("SECRET", least=12),
    Column("VERSION", rank=3, right=True),
    Column("CHANGED", rank=1),
    Column("BY", rank=2),
    Column("FOR", rank=4),
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the secret.")]


@noun.verb("list", "mainspring secret list")
@with_list_options
def list_(
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List secrets: their names, versions, and who may use them. No role can read a value."""
    show_list(options, lambda client: _read(client, limit, cursor))


def _read(client: Client, limit: int, cursor: str | None) -> Listing:
    page = client.secrets(limit=limit, cursor=cursor)
    notes = [] if page.enabled else ["this server has no master key, so it takes no secrets; see docs/secrets.md"]
    return Listing(
        page,
        _COLUMNS,
        lambda times: [_row(one, times) for one in page.secrets],
        nothing="no secrets",
        notes=[*notes, *more_pages(page.next)],
    )


def _row(secret: SecretView, times: TimeFormat) -> tuple[str, ...]:
    return secret.name, str(secret.version), times.brief(secret.changed_at), secret.changed_by, _scope(secret)


def _scope(secret: SecretView) -> str:
    parts = [f"queue {name}" for name in secret.queues] + [f"task {name}" for name in secret.tasks]
    return ", ".join(parts) or "all jobs"


def _place(secret: SecretView) -> str | None:
    outside = secret.external
    if outside is None:
        return None
    return f"store {outside.store}, {outside.path}" + ("" if outside.key is None else f", key {outside.key}")


@noun.verb("show", "mainspring secret show db-password")
def show(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a secret without its value, and the jobs and workflows that name it."""
    from mainspring.cli.text_formats import local

    with server.connect() as client:
        view = client.secret(name)
    if as_json:
        show_json(view)
        return
    used = ", ".join(view.used_by) + (" and more" if view.more_users else "")
    show_fields(
        [
            ("secret", view.name),
            ("version", str(view.version)),
            ("changed", f"{local(view.changed_at)} by {view.changed_by}"),
            ("in", _place(view)),
            ("for", _scope(view)),
            ("used by", used or "no job or workflow"),
        ]
    )


@noun.verb(
    "set",
    "mainspring secret set db-password",
    "mainspring secret set db-password --file password.txt --queue reports",
    "pass show db | mainspring secret set db-password",
    "mainspring secret set db --store vault --path billing/db --key password",
)
def set_(
    server: Server,
    name: NameArgument,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read the value from this file.", show_default="stdin")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="Q", help="Only jobs of this queue may use it; can be repeated."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="T", help="Only jobs of this task may use it; can be repeated."),
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="S", help="The value is in this store outside, at --path.")
    ] = None,
    path: Annotated[str | None, typer.Option("--path", metavar="P", help="Where it is in the store.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="K", help="Which value there, if there are several.")
    ] = None,
    keep_value: Annotated[
        bool, typer.Option("--keep-value", help="Change only who may use it.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Store a secret, or a new version of it. The value is typed, piped or read from a file, never an argument, which
    every user of the machine can see."""
    from mainspring.wire.secrets import ExternalSecret

    if (store is None) != (path is None):
        raise typer.BadParameter("--store and --path go together", param_hint="--store" if path else "--path")
    external = None if store is None or path is None else ExternalSecret(store, path, key)
    value = None if keep_value or external else _value(file)
    with server.connect() as client:
        view = client.set_secret(name, value, queues=queue or [], tasks=task or [], external=external)
    if as_json:
        show_json(view)
    else:
        show_line(f"secret {view.name} has version {view.version}, for {_scope(view)}")


def _value(file: Path | None) -> str:
    """The value, without the line break at its end."""
    from mainspring.domain.errors import InvalidInput

    if file is not None:
        try:
            text = file.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
            raise InvalidInput(f"{file} cannot be read: {why}", field="file") from None
    elif sys.stdin.isatty():
        import getpass

        text = getpass.getpass("Value: ")
    else:
        text = sys.stdin.read()
    value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise InvalidInput("the value is empty", field="value", hint="type it, pipe it, or give --file")
    return value


@noun.verb("delete", "mainspring secret delete db-password")
def delete(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Delete a secret. Attempts that need it fail from now on, with a reason that names it."""
    with server.connect() as client:
        view = client.delete_secret(name)
    if as_json:
        show_json(view)
    else:
        show_line(f"secret {view.name} is deleted")


@noun.verb("rotate-key", "mainspring secret rotate-key")
def rotate_key(server: Server, as_json: JsonFlag = False) -> None:
    """Encrypt the keys of secrets with the newest master key. The servers read their master keys again first."""
    with server.connect() as client:
        done = client.rotate_secret_key()
    if as_json:
        show_json(done)
        return
    show_line(f"master key {done.key}: {done.rewrapped} data keys encrypted anew")
    if done.left:
        say(f"{done.left} are encrypted with a key that this server does not have")


@noun.verb(
    "new-key", "mainspring secret new-key > master-key", "mainspring secret new-key --file .mainspring/master-key"
)
def new_key(
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Put it before the others in this file.", show_default="stdout"),
    ] = None,
) -> None:
    """Make a master key for servers: print it, or add it to a file. Other servers need it too, before it is used."""
    from mainspring.domain.errors import InvalidInput
    from mainspring.operations.secrets.master_keys import new_key as made
    from mainspring.roles.master_key import add_master_key

    if file is None:
        show_line(made())
        return
    try:
        add_master_key(file)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror}", field="file") from None
    say(f"{file} has a new master key; `mainspring secret rotate-key` uses it")
