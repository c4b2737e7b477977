"""`mainspring up`: runs PostgreSQL, one server and one worker on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httptools
from rich.console import Console

from mainspring.api.certificate import TlsFiles
from mainspring.domain.errors import Conflict, InvalidInput, Unavailable, not_ours
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.config import (
    DEFAULT_DATA_FOLDER,
    DEFAULT_TIMING,
    TOKEN_FILE_NAME,
    WORKER_TOKEN_FILE_NAME,
)
from mainspring.kernel.data_folder import is_new, require_recorded
from mainspring.kernel.http_client import HttpServer
from mainspring.kernel.logs import get_logger
from mainspring.kernel.ownership import ForeignFile, require_own
from mainspring.kinds.http.address_guard import AddressGuard
from mainspring.operations.access.sessions import PAGE
from mainspring.roles.application_check import check_application
from mainspring.roles.apprise.sender import apprise_schemes
from mainspring.roles.backup.archive_id import prepare_folder
from mainspring.roles.backup.keeper import checked_interval
from mainspring.roles.backup.repository import Repository
from mainspring.roles.backup.sealed_files import Keys
from mainspring.roles.database import prepare_database, when_available
from mainspring.roles.listening import local_url, require_free_port
from mainspring.roles.log_storage import log_bounds
from mainspring.roles.master_key import FILE_VARIABLE as MASTER_KEY_FILE_VARIABLE
from mainspring.roles.master_key import VARIABLES as MASTER_KEY_VARIABLES
from mainspring.roles.master_key import ensure_master_key, key_reader
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.provider_settings import files_of_providers, read_providers
from mainspring.roles.request_rates import request_rates
from mainspring.roles.retention import audit_days, history_days
from mainspring.roles.secret_stores import VARIABLE as SECRET_STORES_VARIABLE
from mainspring.roles.supervisor import Program, Supervisor, start_postgres
from mainspring.roles.token import ensure_admin_token, ensure_worker_token, remember_folder, sign_in_path
from mainspring.sdk.app.worker_hooks import STOP_SECONDS
from mainspring.sdk.client.connection import SERVER_FILE_NAME, covering
from mainspring.store.database import Database
from mainspring.store.database_errors import database_in_words
from mainspring.store.embedded import EmbeddedPostgres, FolderLock
from mainspring.store.migrate import migrate

log = get_logger("up")

DATABASE_VARIABLE = "MAINSPRING_DATABASE_URL"
DIRECT_VARIABLE = "MAINSPRING_DIRECT_URL"
_SECRETS_OF_SERVERS = frozenset(
    (
        *(f"{variable}{end}" for variable in (DATABASE_VARIABLE, DIRECT_VARIABLE) for end in ("", "_FILE")),
        "PGPASSWORD",
        "PGPASSFILE",
        *MASTER_KEY_VARIABLES,
    )
)
# Commands of the worker must not read them either.
_FILES_OF_SERVERS = (
    f"{DATABASE_VARIABLE}_FILE", f"{DIRECT_VARIABLE}_FILE", MASTER_KEY_FILE_VARIABLE, SECRET_STORES_VARIABLE,
)  # fmt: skip
# -P: a file in the current folder, such as json.py, must not take the place of a module. --app adds the folder itself.
MAINSPRING = (sys.executable, "-P", "-m", "mainspring")

_HEALTH_PATIENCE = 60.0
_HEALTH_ANSWER = 2.0
_HEALTH_POLL = 0.05
_PORT_PATIENCE = 10.0
# A worker drains by itself first. It is killed only if it exceeds its own graces.
_WORKER_GRACE = DEFAULT_TIMING.drain_grace + DEFAULT_TIMING.kill_grace + 2 * STOP_SECONDS + 5.0


@dataclass(frozen=True, slots=True)
class Backups:
    """Where backups go, how often, how many are kept, and the file with the key."""

    folder: Path
    every: str
    keep: int
    key_file: Path | None


@dataclass(frozen=True, slots=True)
class UpOptions:
    data: Path
    host: str
    port: int
    database: Database | None
    app: str | None
    postgres_bin: Path | None
    slots: int | None
    queues: str | None
    log_level: str
    log_format: str = "auto"
    log_store: str | None = None
    reload: bool = False
    http_allow: str | None = None
    notify_allow: str | None = None
    apprise_schemes: str | None = None
    oidc: Path | None = None
    public_url: str | None = None
    kind_flags: Sequence[str] = ()
    tls: TlsFiles | None = None
    ca: str | None = None
    insecure_http: bool = False
    run_as: str | None = None
    process_isolation: str | None = None
    caps: Mapping[str, str] = field(default_factory=dict)  # options of the worker
    prune_schedules: bool = False
    backups: Backups | None = None
    sources: Path | None = None
    data_named: bool = True  # named by the user; otherwise the folder can have come with a repository

    @property
    def folder(self) -> Path:
        return self.data.resolve()

    @property
    def token_file(self) -> Path:
        return self.folder / TOKEN_FILE_NAME

    @property
    def worker_token_file(self) -> Path:
        return self.folder / WORKER_TOKEN_FILE_NAME

    @property
    def url(self) -> str:
        """The server's address for clients on this machine."""
        return local_url(self.host, self.port, self.tls, self.ca)


async def run_up(options: UpOptions) -> int:
    """Serve until SIGINT or SIGTERM, then stop worker, server and PostgreSQL in this order. Returns the exit code."""
    # These checks report a mistake here instead of in a child that restarts forever.
    AddressGuard.from_text(options.http_allow)
    notify_guard(options.notify_allow)
    apprise_schemes(options.apprise_schemes)
    read_providers(options.oidc)
    history_days()
    audit_days()
    log_bounds()
    request_rates(SystemClock())
    key_reader(options.folder)
    _check_backups(options)
    local_url(options.host, options.port, options.tls, options.ca)
    if options.app is not None and not options.reload:  # with --reload the worker says what is wrong, and waits
        await check_application(options.app, worker_environment())
    _require_own(options)
    if not options.folder.exists():
        await _until_port_is_free(options)  # before the folder is made
    postgres = None if options.database else EmbeddedPostgres(options.folder, bin_folder=options.postgres_bin)
    lock = FolderLock(options.folder) if postgres is None else postgres.lock
    lock.acquire()
    remember_folder(options.folder, named=options.data_named)
    supervisor, backing_up = Supervisor(), Supervisor()
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    try:
        await _until_port_is_free(options)
        with _stop_signals((supervisor, backing_up), console) as stop_asked:
            try:
                await _serve_until(stop_asked, options, postgres, supervisor, backing_up, console)
            finally:
                await supervisor.stop()
                await backing_up.stop()  # after PostgreSQL, which ends when all of its WAL was received
    finally:
        (options.folder / SERVER_FILE_NAME).unlink(missing_ok=True)
        if postgres is not None:
            postgres.stop()
        lock.release()
    console.print("Stopped.")
    return 0


def _require_own(options: UpOptions) -> None:
    """Check that the data folder is ours, also if a link leads to it. Later only the folder itself is used. PostgreSQL
    would run programs that the settings of a cluster name, so a folder that can have come with a repository is
    refused."""
    try:
        require_own(options.data)
        if not options.data_named and not is_new(options.data):
            require_recorded(options.data)
    except ForeignFile as error:
        raise not_ours(error) from None


async def _serve_until(
    stop_asked: asyncio.Event,
    options: UpOptions,
    postgres: EmbeddedPostgres | None,
    supervisor: Supervisor,
    backing_up: Supervisor,
    console: Console,
) -> None:
    """Start everything and wait for the stop event. The event also interrupts the start. Raises the error of a failed
    start."""
    starting = asyncio.create_task(_start(options, postgres, supervisor, backing_up, console))
    asked = asyncio.create_task(stop_asked.wait())
    try:
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await asked
    finally:
        for task in (starting, asked):
            task.cancel()
        await asyncio.gather(starting, asked, return_exceptions=True)


async def _start(
    options: UpOptions,
    postgres: EmbeddedPostgres | None,
    supervisor: Supervisor,
    backing_up: Supervisor,
    console: Console,
) -> None:
    database = options.database if postgres is None else Database(postgres.url())
    assert database is not None
    supervisor.start(server_program(options, database), held=True)  # its modules take longer to load than PostgreSQL
    if postgres is not None:
        await start_postgres(postgres)
        supervisor.watch(postgres)
        if options.backups is not None:
            backing_up.start(backup_program(options, options.backups))
        for notice in postgres.notices:
            console.print(f"Note: {notice}.")
    token = await when_available(database, partial(_prepare, database, options.folder, owned=postgres is not None))
    write_server_file(options)
    supervisor.release("server")
    await _until_healthy(options.url, options.ca, _HEALTH_PATIENCE + database.wait)
    supervisor.start(worker_program(options))
    if options.sources is not None:
        supervisor.start(connect_program(options, options.sources))
    page = None
    if sys.stdout.isatty():  # a log keeps what is printed, and others read it
        page = await when_available(database, partial(_sign_in_page, database, token))
    for line in _welcome(options, database, page):
        console.print(line)


async def _prepare(database: Database, folder: Path, *, owned: bool) -> str:
    """Migrate the database and store the tokens of the folder. Returns the admin token."""
    with database_in_words(database):
        # On a database of our own no older process can be left.
        applied = await migrate(database) if owned else await prepare_database(database)
        for name in applied:
            log.detail("migration applied", migration=name)
        token = await ensure_admin_token(database, folder)
        await ensure_worker_token(database, folder)
        ensure_master_key(folder)
    assert token is not None
    return token


async def _sign_in_page(database: Database, token: str) -> str:
    with database_in_words(database):
        return await sign_in_path(database, token)


def server_program(options: UpOptions, database: Database) -> Program:
    """The server. The URLs of the database are passed in the environment, because `ps` shows arguments, and with them
    the password, to every user."""
    argv = [*MAINSPRING, "server", "--host", options.host, "--port", str(options.port)]
    argv += ["--data", str(options.folder), "--log-level", options.log_level]
    argv += ["--log-format", options.log_format]
    if options.log_store is not None:
        argv += ["--log-store", options.log_store]
    if options.notify_allow is not None:
        argv += ["--notify-allow", options.notify_allow]
    if options.apprise_schemes is not None:
        argv += ["--apprise-schemes", options.apprise_schemes]
    if options.oidc is not None:
        argv += ["--oidc", str(options.oidc.absolute())]
    if options.public_url is not None:
        argv += ["--public-url", options.public_url]
    if options.tls is not None:
        argv += ["--tls-cert", str(options.tls.cert), "--tls-key", str(options.tls.key)]
    if options.insecure_http:
        argv.append("--insecure-http")
    chosen = {
        DATABASE_VARIABLE: database.url,
        DIRECT_VARIABLE: database.direct_url or "",
        "MAINSPRING_PGBOUNCER": database.pooling.value,
        "MAINSPRING_DATABASE_WAIT": str(database.wait),
    }
    return Program("server", tuple(argv), {**os.environ, **chosen})


def backup_program(options: UpOptions, backups: Backups) -> Program:
    """The process that archives the WAL and makes backups."""
    argv = [*MAINSPRING, "backup", "keep", str(backups.folder), "--data", str(options.folder)]
    argv += ["--every", backups.every, "--keep", str(backups.keep)]
    if backups.key_file is not None:
        argv += ["--key-file", str(backups.key_file.absolute())]
    if options.postgres_bin is not None:
        argv += ["--postgres-bin", str(options.postgres_bin.absolute())]
    argv += ["--log-level", options.log_level, "--log-format", options.log_format]
    return Program("backup", tuple(argv), worker_environment())


def connect_program(options: UpOptions, sources: Path) -> Program:
    """The process that reads sources from brokers. Its environment does not lead to the database."""
    argv = [*MAINSPRING, "connect", "--sources", str(sources.absolute()), "--server", options.url]
    argv += ["--token-file", str(options.token_file), "--log-level", options.log_level]
    argv += ["--log-format", options.log_format]
    if options.ca is not None:
        argv += ["--ca", options.ca]
    if options.insecure_http:
        argv.append("--insecure-http")
    return Program("connect", tuple(argv), worker_environment())


def _check_backups(options: UpOptions) -> None:
    if options.backups is None:
        return
    if options.database is not None:
        raise InvalidInput(
            "only the embedded PostgreSQL is backed up by Mainspring",
            field="backup",
            hint="docs/backup.md says how to back up your own",
        )
    checked_interval(options.backups.every)
    prepare_folder(options.folder, Repository(options.backups.folder, Keys.of_file(options.backups.key_file)))


def worker_program(options: UpOptions) -> Program:
    """The worker. It runs code of other people, so it has the token of a worker, and its environment does not lead to
    the database. Only the tasks of your own application get a token that may submit jobs."""
    argv = [*MAINSPRING, "worker", "--server", options.url]
    argv += ["--token-file", str(options.worker_token_file), "--log-level", options.log_level]
    argv += ["--data", str(options.folder)]  # which its commands must not see
    argv += ["--log-format", options.log_format]
    if options.app is not None:
        argv += ["--app-token-file", str(options.token_file)]
    if options.insecure_http:
        argv.append("--insecure-http")
    chosen = {
        "--app": options.app,
        "--slots": options.slots,
        "--queues": options.queues,
        "--http-allow": options.http_allow,
        "--ca": options.ca,
        "--run-as": options.run_as,
        "--process-isolation": options.process_isolation,
        **options.caps,
    }
    for flag, value in chosen.items():
        if value is not None:
            argv += [flag, str(value)]
    argv += options.kind_flags
    if options.reload:
        argv.append("--reload")
    if options.prune_schedules:
        argv.append("--prune")
    files = [os.environ.get(name) for name in _FILES_OF_SERVERS]
    files += [str(path) for path in files_of_providers(options.oidc)]
    if options.backups is not None:  # all of the data, and its key
        files += [str(path) for path in (options.backups.folder, options.backups.key_file) if path is not None]
    environment = {**worker_environment(), **covering(files)}
    return Program("worker", tuple(argv), environment, grace=_WORKER_GRACE, may_exit=True)


def worker_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _SECRETS_OF_SERVERS}


async def _until_port_is_free(options: UpOptions) -> None:
    """Wait for the server of a killed `up` to end. The file that it left shows that there was one."""
    left_behind = (options.folder / SERVER_FILE_NAME).exists()
    loop = asyncio.get_running_loop()
    give_up = loop.time() + (_PORT_PATIENCE if left_behind else 0.0)
    while True:
        try:
            return require_free_port(options.host, options.port)
        except Conflict:
            if loop.time() >= give_up:
                raise
        await asyncio.sleep(_HEALTH_POLL)


def write_server_file(options: UpOptions) -> None:
    """Write the server's address for the CLI. The file appears atomically, because it can be read at any time."""
    path = options.folder / SERVER_FILE_NAME
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": options.url, "pid": os.getpid(), "ca": options.ca}, file)
    draft.replace(path)


async def _until_healthy(url: str, ca: str | None, patience: float) -> None:
    server = HttpServer(url, ca)
    try:
        async with asyncio.timeout(patience):
            while True:
                if await _is_healthy(server):
                    return
                await asyncio.sleep(_HEALTH_POLL)
    except TimeoutError as error:
        raise Unavailable(
            f"The server did not answer at {url} within {patience:.0f} s. See its messages above."
        ) from error


async def _is_healthy(server: HttpServer) -> bool:
    with suppress(OSError, httptools.HttpParserError):  # a timeout is an OSError
        async with asyncio.timeout(_HEALTH_ANSWER):
            connection = await server.connect()
            try:
                status, _ = await connection.ask(server.get("/healthz"), b"")
            finally:
                connection.close()
        return 200 <= status < 300
    return False


@contextmanager
def _stop_signals(supervisors: Sequence[Supervisor], console: Console) -> Iterator[asyncio.Event]:
    """The first signal sets the event. A second Ctrl-C kills everything at once."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if not asked.is_set():
            asked.set()
            console.print(
                f"Stopping. Runs have {DEFAULT_TIMING.drain_grace:.0f} s to finish; Ctrl-C again ends them now."
            )
        elif number == signal.SIGINT:
            for supervisor in supervisors:
                supervisor.kill()

    heard = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # with nohup, a closed terminal does not stop the process
        heard.append(signal.SIGHUP)
    for number in heard:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield asked
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


def _welcome(options: UpOptions, database: Database, page: str | None) -> list[str]:
    """`page`: a path that signs in. None if the output goes to a file or a pipe."""
    token_file = shlex.quote(str(options.token_file))
    elsewhere = options.folder != Path(DEFAULT_DATA_FOLDER).resolve()
    folder = f"MAINSPRING_DATA={shlex.quote(str(options.folder))} " if elsewhere else ""
    command = f"{folder}{own_command()}"
    authority = "" if options.ca is None else f"--cacert {shlex.quote(options.ca)} "
    # The URL of the embedded PostgreSQL names the file with its password.
    shown = "your own (--database-url)" if options.database else database.url
    opens = f"`{command} open`"
    signs_in = f"this link signs in once, within 5 minutes; {opens} makes another"
    return [
        f"Mainspring is up at {options.url}",
        f"  dashboard {options.url}{PAGE if page is None else page}",
        f"            {f'{opens} makes a link that signs in' if page is None else signs_in}",
        f"  token     {options.token_file} (the CLI finds it)",
        f"  database  {shown}",
        "",
        "Your first job:",
        f"  {command} submit --command 'echo hello' --wait",
        "or, without the CLI:",
        f'  curl {authority}{options.url}/v1/jobs -H "Authorization: Bearer $(cat {token_file})"'
        """ -H 'Content-Type: application/json' -d '{"command": "echo hello"}'""",
        "",
        "Ctrl-C stops everything and keeps the data.",
    ]


def own_command() -> str:
    """How the second terminal calls this program: by its name, or by its path if the name is not found there."""
    typed = Path(sys.argv[0])
    if typed.name != "mainspring" or shutil.which("mainspring") or not os.access(typed, os.X_OK):
        return "mainspring"
    return shlex.quote(sys.argv[0])
