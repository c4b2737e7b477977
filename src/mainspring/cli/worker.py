"""`mainspring worker`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import DataOption, LogLevelOption, TokenFileOption, UrlOption, checked_log_level
from mainspring.kernel.config import DEFAULT_QUEUE

EXAMPLES = (
    "mainspring worker --app examples.hello:app",
    "mainspring worker --server http://10.0.0.5:8700 --token-file /etc/mainspring/token --queues heavy --slots 4",
)
DEFAULT_SLOTS = 16


def command(
    queues: Annotated[str, typer.Option("--queues", metavar="A,B", help="Queues to serve.")] = DEFAULT_QUEUE,
    slots: Annotated[int, typer.Option("--slots", min=1, max=100_000, help="Runs at a time.")] = DEFAULT_SLOTS,
    name: Annotated[
        str | None, typer.Option("--name", help="What to call this worker.", show_default="host and process")
    ] = None,
    app: Annotated[
        str | None, typer.Option("--app", metavar="MODULE:APP", help="Your tasks, such as examples.hello:app.")
    ] = None,
    log_level: LogLevelOption = "info",
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Run jobs: shell commands, and the tasks of your application. Needs no database, only the server's address.

    On SIGTERM it takes no more work, lets its runs finish, and hands back what it has not started.
    """
    import uvloop

    from mainspring.domain.errors import Unauthorized
    from mainspring.roles.worker import WorkerOptions, run_worker
    from mainspring.sdk.connection import find_connection

    connection = find_connection(url, token_file=token_file, data=data)
    if connection.token is None:
        raise Unauthorized(f"no token found for {connection.url}", code="no_token")
    options = WorkerOptions(
        server=connection.url,
        token=connection.token,
        queues=tuple(part for part in (piece.strip() for piece in queues.split(",")) if part),
        slots=slots,
        name=name,
        app=app,
        log_level=checked_log_level(log_level),
    )
    raise typer.Exit(uvloop.run(run_worker(options)))
