"""Options that mean the same in several commands. A command gets them by a parameter.

`server: Server` stands for the connection options. --ca and --insecure-http act as MAINSPRING_CA and
MAINSPRING_INSECURE_HTTP do: for all clients of the process, also those in tasks of a worker. `database` stands for the
options that say which database it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mainspring.kernel.trust import CA_VARIABLE, INSECURE_VARIABLE
from mainspring.store.database import Pooling

_PANEL = "Connection"
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        "--server",
        metavar="URL",
        help="Address of the server, or several addresses separated by commas: if one does not answer, the next is "
        "used. Default: MAINSPRING_URL, then the data folder, then http://127.0.0.1:8700.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File that contains the token. Default: MAINSPRING_TOKEN, then MAINSPRING_TOKEN_FILE, then the data "
        "folder.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data folder of `mainspring up`. Default: MAINSPRING_DATA, then .mainspring in this folder or a parent.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        envvar=CA_VARIABLE,
        help="Trust the authorities in this file (PEM) instead of those of the system.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
InsecureFlag = Annotated[
    bool,
    typer.Option(
        "--insecure-http",
        envvar=INSECURE_VARIABLE,
        help="Send the token without TLS to another machine.",
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
        help="PostgreSQL database to use: postgresql://user@host:5432/name. The password belongs in "
        "--database-url-file, PGPASSFILE or the environment: `ps` shows the command line to everybody.",
        show_default=False,
    ),
]
DatabaseUrlFileOption = Annotated[
    Path | None,
    typer.Option(
        "--database-url-file",
        metavar="FILE",
        envvar="MAINSPRING_DATABASE_URL_FILE",
        help="File that contains the URL of the database, with its password.",
        show_default=False,
    ),
]
DirectUrlOption = Annotated[
    str | None,
    typer.Option(
        "--direct-url",
        metavar="URL",
        envvar="MAINSPRING_DIRECT_URL",
        help="The same database without PgBouncer, for migrations, leases and notifications.",
        show_default=False,
    ),
]
DirectUrlFileOption = Annotated[
    Path | None,
    typer.Option(
        "--direct-url-file",
        metavar="FILE",
        envvar="MAINSPRING_DIRECT_URL_FILE",
        help="File that contains the direct URL, with its password.",
        show_default=False,
    ),
]
PgBouncerOption = Annotated[
    Pooling,
    typer.Option(
        "--pgbouncer",
        envvar="MAINSPRING_PGBOUNCER",
        help="What is at --database-url: PostgreSQL itself (none), or a PgBouncer with this pool_mode.",
    ),
]
DatabaseWaitOption = Annotated[
    str,
    typer.Option(
        "--database-wait",
        metavar="TIME",
        envvar="MAINSPRING_DATABASE_WAIT",
        help="How long the start waits for a PostgreSQL that is down, starts or recovers: 30s, 10m. 0: not at all.",
    ),
]
_DEFAULT_WAIT = "5m"

# The options that a parameter of a command stands for.
SHARED: dict[str, dict[str, tuple[Any, Any]]] = {
    "server": {
        "url": (UrlOption, None),
        "token_file": (TokenFileOption, None),
        "data": (DataOption, None),
        "ca": (CaOption, None),
        "insecure_http": (InsecureFlag, False),
    },
    "database": {
        "database_url": (DatabaseUrlOption, None),
        "database_url_file": (DatabaseUrlFileOption, None),
        "direct_url": (DirectUrlOption, None),
        "direct_url_file": (DirectUrlFileOption, None),
        "pgbouncer": (PgBouncerOption, Pooling.NONE),
        "database_wait": (DatabaseWaitOption, _DEFAULT_WAIT),
    },
}


def parameters_of(command: Callable[..., None]) -> dict[str, inspect.Parameter]:
    """The parameters of a command, with the options that a parameter stands for instead of it, at the end."""
    found = dict(inspect.signature(command, eval_str=True).parameters)
    for name, options in SHARED.items():
        if found.pop(name, None) is not None:
            if taken := found.keys() & options.keys():  # it would be read as the address of the server
                raise TypeError(f"{command.__qualname__} has a parameter of its own with a shared name: {taken}")
            found |= {option: keyword(option, *declared) for option, declared in options.items()}
    return {name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, each in found.items()}


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
