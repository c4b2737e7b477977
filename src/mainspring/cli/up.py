"""`mainspring up`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mainspring.cli.added_options import with_options
from mainspring.cli.caps import (
    MaxCpusOption,
    MaxMemoryOption,
    MaxProcessesOption,
    RunMaxCpuOption,
    RunMaxMemoryOption,
    RunMaxProcessesOption,
    flags_of,
    read_caps,
)
from mainspring.cli.connect import (
    AppriseSchemesOption,
    HttpAllowOption,
    InsecureListenFlag,
    LogFormatOption,
    LogLevelOption,
    LogStoreOption,
    NotifyAllowOption,
    OidcOption,
    PublicUrlOption,
    ReloadFlag,
    TlsCertOption,
    TlsKeyOption,
    check_reload,
    checked_log_format,
    checked_log_level,
)
from mainspring.cli.connector import SourcesOption, read_sources_file
from mainspring.cli.shared_options import CaOption
from mainspring.cli.task_options import flags_of_kinds, worker_options
from mainspring.cli.worker import DEFAULT_SLOTS, IsolationOption, PruneFlag, QueuesOption, RunAsOption, check_isolation
from mainspring.kernel.config import DEFAULT_DATA_FOLDER, DEFAULT_HOST, DEFAULT_PORT
from mainspring.store.database import Database

EXAMPLES = ("mainspring up", "mainspring up --app examples.hello:app --port 8800")


@with_options(worker_options(), after="http_allow")
def command(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="MAINSPRING_DATA",
            help="Folder of the database and token.",
            show_default=DEFAULT_DATA_FOLDER,
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", metavar="H", help="Address to listen on.")] = DEFAULT_HOST,
    port: Annotated[int, typer.Option("--port", metavar="N", min=1, max=65535)] = DEFAULT_PORT,
    database: Database | None = None,
    app: Annotated[
        str | None, typer.Option("--app", metavar="MODULE:APP", help="Your tasks, such as examples.hello:app.")
    ] = None,
    postgres_bin: Annotated[
        Path | None, typer.Option("--postgres-bin", metavar="DIR", help="Use the PostgreSQL programs in this folder.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="How many runs execute at the same time.", show_default=False)
    ] = None,
    queues: QueuesOption = None,
    reload: ReloadFlag = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    ca: CaOption = None,
    insecure_http: InsecureListenFlag = False,
    log_store: LogStoreOption = None,
    notify_allow: NotifyAllowOption = None,
    apprise_schemes: AppriseSchemesOption = None,
    public_url: PublicUrlOption = None,
    oidc: OidcOption = None,
    http_allow: HttpAllowOption = None,
    run_as: RunAsOption = None,
    process_isolation: IsolationOption = "auto",
    run_max_memory: RunMaxMemoryOption = None,
    run_max_processes: RunMaxProcessesOption = None,
    run_max_cpu: RunMaxCpuOption = None,
    max_memory: MaxMemoryOption = None,
    max_processes: MaxProcessesOption = None,
    max_cpus: MaxCpusOption = None,
    prune: PruneFlag = False,
    sources: SourcesOption = None,
    backup: Annotated[
        Path | None,
        typer.Option(
            "--backup", metavar="DIR", help="Keep backups of the database in this folder.", show_default=False
        ),
    ] = None,
    backup_every: Annotated[
        str, typer.Option("--backup-every", metavar="DURATION", help="How often to make a backup.")
    ] = "1d",
    backup_keep: Annotated[
        int, typer.Option("--backup-keep", metavar="N", min=1, max=10_000, help="How many backups to keep.")
    ] = 7,
    backup_key: Annotated[
        Path | None,
        typer.Option(
            "--backup-key", metavar="FILE", help="Encrypt backups with the first key in this file.", show_default=False
        ),
    ] = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "auto",
    **kinds: Any,
) -> None:
    """Start everything on this machine: PostgreSQL, the server and a worker. Ctrl-C stops them and keeps the data.

    It starts its own PostgreSQL unless --database-url is given. The admin token is in the data folder, where the
    other commands find it.
    """
    import uvloop

    from mainspring.kernel.logs import configure_logs
    from mainspring.roles.listening import checked_listening, checked_public_url
    from mainspring.roles.up import Backups, UpOptions, run_up
    from mainspring.sdk.client.connection import checked_ca

    trusted = checked_ca(ca)
    tls = checked_listening(host, tls_cert, tls_key, insecure_http=insecure_http)
    if reload:
        check_reload(app)
    if queues is not None:
        from mainspring.worker.exchange.queue_weights import parse_queues

        parse_queues(queues, slots or DEFAULT_SLOTS)  # report a mistake before anything is started
    check_isolation(process_isolation)
    read_caps(run_max_memory, run_max_processes, run_max_cpu, max_memory, max_processes, max_cpus)
    if run_as is not None:
        from mainspring.worker.processes.accounts import command_accounts

        command_accounts(run_as)
    if sources is not None:
        read_sources_file(sources)  # report a mistake before anything is started
    level, wanted_format = checked_log_level(log_level), checked_log_format(log_format)
    configure_logs(role="up", log_format=wanted_format, level=level)
    options = UpOptions(
        data=data or Path(DEFAULT_DATA_FOLDER),
        data_named=data is not None,
        host=host,
        port=port,
        database=database,
        app=app,
        postgres_bin=postgres_bin,
        slots=slots,
        queues=queues,
        log_level=level,
        log_format=wanted_format,
        http_allow=http_allow,
        kind_flags=flags_of_kinds(kinds),
        run_as=run_as,
        process_isolation=process_isolation,
        caps=flags_of(
            run_max_memory=run_max_memory,
            run_max_processes=run_max_processes,
            run_max_cpu=run_max_cpu,
            max_memory=max_memory,
            max_processes=max_processes,
            max_cpus=max_cpus,
        ),
        log_store=log_store or None,
        notify_allow=notify_allow,
        apprise_schemes=apprise_schemes,
        oidc=oidc,
        public_url=checked_public_url(public_url),
        reload=reload,
        tls=tls,
        ca=trusted,
        insecure_http=insecure_http,
        prune_schedules=prune,
        sources=sources,
        backups=None if backup is None else Backups(backup.absolute(), backup_every, backup_keep, backup_key),
    )
    raise typer.Exit(uvloop.run(run_up(options)))
