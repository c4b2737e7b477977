"""The options by which a verb finds its server, and the client that they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

_PANEL = "Connection"
# People wait in front of this: a server that is away is reported soon, one that restarts is waited for.
_PATIENCE = 1.0

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print the server's JSON on stdout, and nothing else.", show_default=False)
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        "--server",
        metavar="URL",
        help="Address of the server, or of several with commas: if one is away, the next is used. "
        "Otherwise MAINSPRING_URL, the data folder, http://127.0.0.1:8700.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File that holds the token. Otherwise MAINSPRING_TOKEN, MAINSPRING_TOKEN_FILE, the data folder.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data folder of `mainspring up`. Otherwise MAINSPRING_DATA, or .mainspring here and above.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
DatabaseUrlOption = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        envvar="MAINSPRING_DATABASE_URL",
        help="PostgreSQL to use: postgresql://user:password@host:5432/name",
        show_default=False,
    ),
]
LogStoreOption = Annotated[
    str | None,
    typer.Option(
        "--log-store",
        metavar="URL",
        envvar="MAINSPRING_LOG_STORE",
        help="Where the output of runs is kept: a folder, s3://bucket/prefix, gs:// or az://.",
        show_default="the folder logs in --data",
    ),
]
HttpAllowOption = Annotated[
    str | None,
    typer.Option(
        "--http-allow",
        metavar="A,B",
        envvar="MAINSPRING_HTTP_ALLOW",
        help="What http tasks may call besides public addresses: 10.0.0.0/8, hooks.internal:8080; * is everything.",
    ),
]
ReloadFlag = Annotated[
    bool,
    typer.Option("--reload", help="For development: start the worker anew when your files change.", show_default=False),
]
LogLevelOption = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")]


def connect(url: str | None, token_file: Path | None, data: Path | None) -> Client:
    """A client for one command; use it in a `with`."""
    from mainspring.sdk.client.client import Client

    return Client(url, token_file=token_file, data=data, patience=_PATIENCE)


def needed_database_url(database_url: str | None) -> str:
    from mainspring.domain.errors import InvalidInput

    if not database_url:
        raise InvalidInput(
            "no database is named",
            code="no_database",
            field="database_url",
            hint="give --database-url or set MAINSPRING_DATABASE_URL; `mainspring up` brings a PostgreSQL of its own",
        )
    return database_url


def check_reload(app: str | None) -> None:
    from mainspring.domain.errors import InvalidInput

    if app is None:
        raise InvalidInput("reload: there is no application to reload", field="reload", hint="name it with --app")


def checked_log_level(level: str) -> str:
    from mainspring.domain.errors import InvalidInput

    if level.lower() not in ("debug", "info", "warning", "error"):
        raise InvalidInput(f"{level!r} is not a log level", field="log_level", expected="debug, info, warning or error")
    return level.lower()
