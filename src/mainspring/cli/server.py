"""`mainspring server`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mainspring.cli.connect import (
    AppriseSchemesOption,
    InsecureListenFlag,
    LogFormatOption,
    LogLevelOption,
    LogStoreOption,
    NotifyAllowOption,
    OidcOption,
    PublicUrlOption,
    ReadUrlOption,
    TlsCertOption,
    TlsKeyOption,
    checked_log_format,
    checked_log_level,
    needed_database,
)
from mainspring.kernel.config import (
    DEFAULT_DATA_FOLDER,
    DEFAULT_HOST,
    DEFAULT_PORT,
    MAX_CONNECTIONS,
    MAX_UNAUTHENTICATED,
)
from mainspring.store.database import Database, checked_url

EXAMPLES = (
    "mainspring server --database-url-file database-url",
    "mainspring server --host 0.0.0.0 --tls-cert chain.pem --tls-key key.pem",
    "mainspring server --processes auto",
)


def command(
    database: Database | None = None,
    host: Annotated[str, typer.Option("--host", metavar="H", help="Address to listen on.")] = DEFAULT_HOST,
    port: Annotated[int, typer.Option("--port", metavar="N", min=1, max=65535)] = DEFAULT_PORT,
    processes: Annotated[
        str,
        typer.Option(
            "--processes",
            metavar="N|auto",
            help="Server processes behind this port: a number, or auto for one for each core. They divide connections "
            "and limits. SIGHUP replaces them one after another.",
        ),
    ] = "1",
    scheduler: Annotated[
        bool, typer.Option("--scheduler/--no-scheduler", help="Fire due jobs in this process, or only serve the API.")
    ] = True,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="MAINSPRING_DATA",
            help="Folder of the admin token.",
            show_default=DEFAULT_DATA_FOLDER,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Accept requests to this host name. Can be repeated."),
    ] = None,
    public_url: PublicUrlOption = None,
    oidc: OidcOption = None,
    read_url: ReadUrlOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    insecure_http: InsecureListenFlag = False,
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections",
            metavar="N",
            min=1,
            help="Connections at a time. Fewer, if the limit of open files (ulimit -Hn) has no room for them.",
        ),
    ] = MAX_CONNECTIONS,
    max_unauthenticated: Annotated[
        int,
        typer.Option(
            "--max-unauthenticated-per-address",
            metavar="N",
            min=0,
            help="Connections from one address that send no complete request and no valid token. 0: no limit. "
            "All clients behind a load balancer have its address.",
        ),
    ] = MAX_UNAUTHENTICATED,
    log_store: LogStoreOption = None,
    notify_allow: NotifyAllowOption = None,
    apprise_schemes: AppriseSchemesOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "auto",
) -> None:
    """Serve the HTTP API and fire due jobs, with a PostgreSQL that you run. You can start several servers."""
    from mainspring.kernel.garbage_collection import pause_garbage_collection

    pause_garbage_collection()  # before the imports; the server enables it again when it is up
    import uvloop

    from mainspring.kernel.held_start import wait_until_released
    from mainspring.kernel.siblings import own_place
    from mainspring.roles.listening import checked_listening, checked_public_url
    from mainspring.roles.server import ServerOptions, run_server
    from mainspring.roles.server_processes import own_command, process_count, run_processes

    wait_until_released()
    options = ServerOptions(
        database=needed_database(database),
        host=host,
        port=port,
        scheduler=scheduler,
        data=data or Path(DEFAULT_DATA_FOLDER),
        data_named=data is not None,
        log_level=checked_log_level(log_level),
        log_format=checked_log_format(log_format),
        allow_hosts=tuple(allow_host or ()),
        public_url=checked_public_url(public_url),
        log_store=log_store or None,
        notify_allow=notify_allow,
        apprise_schemes=apprise_schemes,
        oidc=oidc,
        read_url=checked_url(read_url, "read_url") if read_url else None,
        tls=checked_listening(host, tls_cert, tls_key, insecure_http=insecure_http),
        max_connections=max_connections,
        max_unauthenticated_per_address=max_unauthenticated,
        place=own_place(),
    )
    count = process_count(processes)
    if count > 1 and options.place is None:
        raise typer.Exit(uvloop.run(run_processes(options, count, own_command())))
    raise typer.Exit(uvloop.run(run_server(options)))
