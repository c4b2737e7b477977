"""`mainspring connect`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import LogFormatOption, LogLevelOption, Server, checked_log_format, checked_log_level

if TYPE_CHECKING:
    from mainspring.brokers.connect_settings import SourceSettings

EXAMPLES = (
    "mainspring connect --sources connect.yaml",
    "mainspring connect --sources connect.yaml --token-file /etc/mainspring/token",
)
_HELP = "The file that says what to read from brokers, and what becomes of it."
SourcesOption = Annotated[
    Path | None,
    typer.Option("--sources", metavar="FILE", help=_HELP, show_default=False),
]


def command(
    server: Server,
    sources: Annotated[Path, typer.Option("--sources", metavar="FILE", help=_HELP, show_default=False)],
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of this connector, the same after a restart.", show_default="the host"),
    ] = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "auto",
) -> None:
    """Read from Kafka, NATS JetStream, RabbitMQ and Redis streams, and emit events or submit jobs, once each.

    Needs a server and a token of the role submitter, but no database. Several connectors share the work.
    """
    import uvloop

    from mainspring.domain.errors import Unauthorized
    from mainspring.roles.connect import ConnectOptions, run_connect
    from mainspring.sdk.client.connection import find_connection

    connection = find_connection(server.url, token_file=server.token_file, data=server.data)
    found = read_sources_file(sources)
    if connection.token is None:
        raise Unauthorized(f"no token found for {connection.url}", code="no_token")
    options = ConnectOptions(
        server=connection.url,
        token=connection.token,
        sources=found,
        name=name,
        log_level=checked_log_level(log_level),
        log_format=checked_log_format(log_format),
    )
    raise typer.Exit(uvloop.run(run_connect(options)))


def read_sources_file(path: Path) -> list[SourceSettings]:
    """The sources of a file. Raises InvalidInput, and MainspringError if an extra is missing."""
    import os

    from mainspring.brokers.connect_settings import read_sources
    from mainspring.brokers.consumers import require_library
    from mainspring.cli.workflow_file import read_text, read_yaml, refused

    documents = read_yaml(str(path), read_text(str(path)), "the file is a mapping: sources")
    if len(documents) != 1:
        raise refused(f"{path} has {len(documents)} documents", expected="one, with sources")
    found = read_sources(documents[0][0], os.environ)
    for kind in {source.kind for source in found}:
        require_library(kind)
    return found
