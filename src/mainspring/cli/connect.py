"""The server of a command, and options that several commands declare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.store.database import Database

# A user waits for the answer. One second bridges a restart of the server; after that the error is reported.
_PATIENCE = 1.0

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the server's answer as JSON.", show_default=False)]
TlsCertOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        envvar="MAINSPRING_TLS_CERT",
        help="Serve HTTPS with this certificate and its chain (PEM). Loaded again when it changes.",
        show_default=False,
    ),
]
TlsKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-key", metavar="FILE", envvar="MAINSPRING_TLS_KEY", help="Key of --tls-cert (PEM).", show_default=False
    ),
]
InsecureListenFlag = Annotated[
    bool,
    typer.Option(
        "--insecure-http",
        envvar="MAINSPRING_INSECURE_HTTP",
        help="Serve other machines without TLS. Whoever is on the way can read tokens and payloads.",
        show_default=False,
    ),
]
LogStoreOption = Annotated[
    str | None,
    typer.Option(
        "--log-store",
        metavar="URL",
        envvar="MAINSPRING_LOG_STORE",
        help="Where the output of runs is stored: a folder, s3://bucket/prefix, gs:// or az://.",
        show_default="PostgreSQL",
    ),
]
NotifyAllowOption = Annotated[
    str | None,
    typer.Option(
        "--notify-allow",
        metavar="A,B",
        envvar="MAINSPRING_NOTIFY_ALLOW",
        help="Addresses that channels of notifications may call in addition to public ones: 10.0.0.0/8, "
        "mail.internal:587. * allows every address.",
    ),
]
AppriseSchemesOption = Annotated[
    str | None,
    typer.Option(
        "--apprise-schemes",
        metavar="A,B",
        envvar="MAINSPRING_APPRISE_SCHEMES",
        help="Services of apprise that channels may use, by scheme: ntfy,matrix. Needs the extra apprise.",
        show_default="none",
    ),
]
PublicUrlOption = Annotated[
    str | None,
    typer.Option(
        "--public-url",
        metavar="URL",
        envvar="MAINSPRING_PUBLIC_URL",
        help="Address at which people and clients reach the servers: https://jobs.example.com. Links begin with it, "
        "also those in notifications, and requests to its host name are accepted.",
        show_default=False,
    ),
]
ReadUrlOption = Annotated[
    str | None,
    typer.Option(
        "--read-url",
        metavar="URL",
        envvar="MAINSPRING_READ_URL",
        help="A standby of PostgreSQL that answers lists and searches, unless it is more than 5 s behind.",
        show_default=False,
    ),
]
OidcOption = Annotated[
    Path | None,
    typer.Option(
        "--oidc",
        metavar="FILE",
        envvar="MAINSPRING_OIDC",
        help="File (TOML) with the providers of OpenID Connect at which people sign in, and what their groups may do.",
        show_default=False,
    ),
]
HttpAllowOption = Annotated[
    str | None,
    typer.Option(
        "--http-allow",
        metavar="A,B",
        envvar="MAINSPRING_HTTP_ALLOW",
        help="Addresses that http tasks may call in addition to public ones: 10.0.0.0/8, hooks.internal:8080. "
        "* allows every address.",
    ),
]
ReloadFlag = Annotated[
    bool,
    typer.Option("--reload", help="For development: restart the worker when your files change.", show_default=False),
]
LogLevelOption = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")]

LogFormatOption = Annotated[
    str,
    typer.Option(
        "--log-format",
        metavar="FORMAT",
        envvar="MAINSPRING_LOG_FORMAT",
        help="text: one readable line per event. json: one JSON object per line. auto: text on a terminal.",
    ),
]


class Server(NamedTuple):
    """The server that the connection options name. A command with a parameter of this type has them all."""

    url: str | None = None
    token_file: Path | None = None
    data: Path | None = None

    def connect(self) -> Client:
        """A client for one command; use it in a `with`."""
        from mainspring.sdk.client.client import Client

        _print_warnings()
        return Client(self.url, token_file=self.token_file, data=self.data, patience=_PATIENCE)


def _print_warnings() -> None:
    """The client logs what the server warns of. A command prints it."""
    import logging

    from mainspring.cli.screen import say

    class Printing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"warning: {record.getMessage()}")

    of_client = logging.getLogger("mainspring")
    if not of_client.handlers:
        of_client.addHandler(Printing())
        of_client.propagate = False


def needed_database(database: Database | None) -> Database:
    from mainspring.domain.errors import InvalidInput

    if database is None:
        raise InvalidInput(
            "no database is given",
            code="no_database",
            field="database_url",
            hint="give --database-url or set MAINSPRING_DATABASE_URL; `mainspring up` starts a PostgreSQL of its own",
        )
    return database


def check_reload(app: str | None) -> None:
    from mainspring.domain.errors import InvalidInput

    if app is None:
        raise InvalidInput("--reload needs an application", field="reload", hint="give --app MODULE:APP")


def checked_log_level(level: str) -> str:
    from mainspring.domain.errors import InvalidInput

    if level.lower() not in ("debug", "info", "warning", "error"):
        raise InvalidInput(f"{level!r} is not a log level", field="log_level", expected="debug, info, warning or error")
    return level.lower()


def checked_log_format(word: str) -> str:
    from mainspring.domain.errors import InvalidInput
    from mainspring.kernel.logs import LOG_FORMATS

    if word.lower() not in LOG_FORMATS:
        raise InvalidInput(f"{word!r} is not a log format", field="log_format", expected="auto, text or json")
    return word.lower()
