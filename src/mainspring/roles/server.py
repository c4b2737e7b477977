"""The server process: the API and, unless disabled, a scheduler node."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from mainspring.api.acceptor import Acceptor
from mainspring.api.certificate import ServerCertificate, TlsFiles
from mainspring.api.connections import Connections, EdgeLimits
from mainspring.api.early_refusals import SAFE_HEADERS
from mainspring.api.http_protocol import BoundedHttpProtocol
from mainspring.api.readiness import ReadinessCheck
from mainspring.domain.errors import not_ours
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.config import MAX_CONNECTIONS, MAX_UNAUTHENTICATED, TOKEN_FILE_NAME
from mainspring.kernel.data_folder import is_new, is_recorded
from mainspring.kernel.descriptors import raise_limit
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.kernel.lifecycle import Loops
from mainspring.kernel.logs import bind_log_context, configure_logs, get_logger
from mainspring.kernel.ownership import ForeignFile, require_no_links, require_own
from mainspring.kernel.parent_death import kill_after_supervisor
from mainspring.kernel.private_files import write_privately
from mainspring.kernel.public_url import set_public_url
from mainspring.kernel.siblings import SiblingPlace
from mainspring.roles.apprise.sender import apprise_schemes
from mainspring.roles.assembly import Assembly, assemble
from mainspring.roles.database import prepare_database, when_available
from mainspring.roles.listening import require_free_port
from mainspring.roles.log_storage import LogStorage, log_bounds, open_log_storage
from mainspring.roles.master_key import key_reader
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.notify_transport import notify_transport
from mainspring.roles.provider_settings import read_providers
from mainspring.roles.request_rates import request_rates
from mainspring.roles.retention import audit_days, history_days
from mainspring.roles.secret_stores import read_secret_stores
from mainspring.roles.sink_producers import NetworkProducers
from mainspring.roles.stop_signals import StopSignals
from mainspring.roles.token import ensure_admin_token, remember_folder
from mainspring.store.database import Database
from mainspring.store.database_errors import database_in_words

log = get_logger("server")

_SHUTDOWN = 10
_ORPHANED_SECONDS = _SHUTDOWN + 5.0  # how long a server may take to stop when `mainspring up` was killed


@dataclass(frozen=True, slots=True)
class ServerOptions:
    database: Database
    host: str
    port: int
    scheduler: bool
    data: Path
    data_named: bool = True  # by the user. Otherwise the folder can have come with a repository
    log_level: str = "info"
    log_format: str = "auto"
    allow_hosts: tuple[str, ...] = ()
    public_url: str | None = None
    log_store: str | None = None
    tls: TlsFiles | None = None
    max_connections: int = MAX_CONNECTIONS
    max_unauthenticated_per_address: int = MAX_UNAUTHENTICATED
    notify_allow: str | None = None
    apprise_schemes: str | None = None
    oidc: Path | None = None
    read_url: str | None = None  # of a standby, for lists and searches
    place: SiblingPlace | None = None  # among the processes of one server, which divide what it may use

    @property
    def share(self) -> int:
        """By how much to divide what the server may use."""
        return 1 if self.place is None else self.place.count


async def run_server(options: ServerOptions) -> int:
    configure_logs(role="server", log_format=options.log_format, level=options.log_level)
    if options.place is not None:
        bind_log_context(process=options.place.name)
    kill_after_supervisor(_ORPHANED_SECONDS)
    write_privately()
    history_days()  # report a mistake before anything is changed
    audit_days()
    log_bounds()
    request_rates(SystemClock())
    key_reader(options.data)
    notify_guard(options.notify_allow)
    apprise_schemes(options.apprise_schemes)
    read_providers(options.oidc)
    set_public_url(options.public_url)
    if options.place is None:
        require_free_port(options.host, options.port)
    certificate = None if options.tls is None else ServerCertificate(options.tls)
    trusted = _judged(options)
    connections = Connections(edge_limits(options))
    log_storage = await open_log_storage(options.log_store, options.data)
    stop = StopSignals()
    started = await stop.unless_asked(when_available(options.database, partial(_start, options, log_storage, trusted)))
    stop.release()  # uvicorn has handlers of its own
    if started is None or stop.asked.is_set():
        if started is not None:
            await started[0].stop(started[1])
        await log_storage.close()
        return 0
    assembly, loops = started
    if assembly.node is not None:
        bind_log_context(node=str(assembly.node.node_id))
    if certificate is not None:
        loops.start(certificate)
    loops.start(connections)
    freeze_garbage_collection()
    config = uvicorn.Config(
        assembly.front(),
        host=options.host,
        port=options.port,
        **edge_settings(connections),
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        backlog=2048,
        timeout_graceful_shutdown=_SHUTDOWN,
    )
    scheme = "http" if certificate is None else "https"
    log.info("serving", url=f"{scheme}://{options.host}:{options.port}", scheduler=options.scheduler)
    server = _Server(config, connections, certificate, on_exit=assembly.release_waiters)
    sockets = None
    if options.place is not None:
        sockets = [socket.socket(fileno=descriptor) for descriptor in options.place.listeners]
        loops.start(ReadinessTeller(options.place, assembly.services.readiness))
    try:
        await server.serve(sockets)
    finally:
        await assembly.stop(loops)
        await log_storage.close()
    return 0


async def _start(options: ServerOptions, log_storage: LogStorage, trusted: bool) -> tuple[Assembly, Loops]:
    """Prepare the database, and start everything but the API."""
    if applied := await prepare_database(options.database):
        log.detail("schema migrated", applied=applied)
    with database_in_words(options.database):
        if await ensure_admin_token(options.database, options.data, only_first=True, trusted=trusted):
            log.detail("admin token", file=str(options.data / TOKEN_FILE_NAME))
            trusted = True
        if trusted:
            remember_folder(options.data, named=options.data_named)
        transport = notify_transport(options.notify_allow, options.apprise_schemes)
        assembly = await assemble(
            options.database,
            SystemClock(),
            host=options.host,
            allow_hosts=(*options.allow_hosts, *host_of(options.public_url)),
            scheduler=options.scheduler,
            log_files=log_storage.named,
            old_log_files=log_storage.old,
            log_bounds=log_bounds(),
            rates=request_rates(SystemClock()),
            place=options.place,
            read_keys=key_reader(options.data),
            secret_readers=read_secret_stores(),
            transport=transport,
            producers=NetworkProducers(notify_guard(options.notify_allow), transport),
            page_url=options.public_url,
            providers=read_providers(options.oidc),
            read_url=options.read_url,
        )
        if assembly.node is not None:
            bind_log_context(node=str(assembly.node.node_id))
        loops = Loops(assembly.store.outage)
        try:
            await assembly.start(loops)
        except BaseException:
            await assembly.stop(loops)
            raise
    return assembly, loops


def host_of(url: str | None) -> tuple[str, ...]:
    """The host name in the public address, which requests may name."""
    name = urlsplit(url).hostname if url else None
    return (name,) if name else ()


def _judged(options: ServerOptions) -> bool:
    """Whether the data folder is ours beyond doubt. Raises Forbidden before anything is written into the folder of
    another user, or through a link that can have come with a repository."""
    folder = options.data
    try:
        require_own(folder)
        if options.data_named or is_new(folder) or is_recorded(folder):
            return True
        require_no_links(folder)
    except ForeignFile as error:
        raise not_ours(error) from None
    return False


def edge_limits(options: ServerOptions) -> EdgeLimits:
    """Raise the limit of descriptors, and allow as many connections as fit."""
    descriptors = raise_limit()
    most = min(max(1, options.max_connections // options.share), descriptors.for_connections)
    per_address = -(-options.max_unauthenticated_per_address // options.share)
    log.detail("connections of clients", most=most, descriptors=descriptors.now, descriptors_before=descriptors.before)
    return EdgeLimits(connections=most, per_address=per_address)


def edge_settings(connections: Connections) -> dict[str, Any]:
    """Settings of uvicorn: our protocol, and the headers of every answer."""
    return {
        "http": partial(BoundedHttpProtocol, edge=connections),
        "ws": "none",
        "headers": list(SAFE_HEADERS),
        "server_header": False,
        "proxy_headers": False,  # a caller's address is that of its connection, whatever X-Forwarded-For says
    }


class ReadinessTeller:
    """Tells the other processes of this server whether this one is ready."""

    name = "readiness_teller"
    interval = 2.0

    def __init__(self, place: SiblingPlace, readiness: ReadinessCheck) -> None:
        self._place = place
        self._readiness = readiness

    async def run_once(self) -> None:
        found = await self._readiness.check_own()
        self._place.tell(found.status == "ready")


class _Server(uvicorn.Server):
    """uvicorn with a callback on exit, which ends the waiting requests. They would delay the shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        certificate: ServerCertificate | None,
        on_exit: Callable[[], None],
    ) -> None:
        super().__init__(config)
        config.load()
        config.ssl = None if certificate is None else certificate.context
        self._connections = connections
        self._on_exit = on_exit
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        listeners = [listener for server in self.servers for listener in server.sockets]
        tls = self.config.ssl
        self._acceptors = [Acceptor(listener, self._protocol, self._connections, tls=tls) for listener in listeners]
        if tls is not None:
            for server in self.servers:
                server.close()  # only the acceptors accept: their handshakes have a timeout

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()
        super().handle_exit(sig, frame)
        with suppress(ValueError):
            self._captured_signals.remove(signal.Signals(sig))  # the signal is handled; uvicorn must not raise it again
