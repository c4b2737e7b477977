"""Where a server listens: tokens travel through TLS, or they do not leave the machine, or the operator allowed it."""

from __future__ import annotations

import errno
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mainspring.api.certificate import TlsFiles, handshake, load
from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.domain.texts import shown
from mainspring.kernel.trust import is_loopback, tls_failure, trusted_context

_LISTEN = "0A"  # the state of a socket in /proc/net/tcp
_LONGEST_COMMAND = 80
_FROM_HERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def checked_listening(host: str, cert: Path | None, key: Path | None, *, insecure_http: bool) -> TlsFiles | None:
    """The files of the certificate, loaded once to report mistakes. None: plain HTTP. Raises InvalidInput if that would
    show tokens to others."""
    if cert is None and key is None:
        if not insecure_http and not is_loopback(host):
            raise InvalidInput(
                f"other machines can reach {host or 'this address'}, and without TLS their tokens can be read",
                code="insecure_http",
                field="host",
                hint="give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy with TLS, or on a network "
                "that you trust give --insecure-http",
            )
        return None
    if cert is None or key is None:
        missing = "tls_cert" if cert is None else "tls_key"
        raise InvalidInput("TLS needs a certificate and its key", field=missing, hint="give --tls-cert and --tls-key")
    files = TlsFiles(cert.absolute(), key.absolute())
    load(files)
    return files


def checked_public_url(url: str | None) -> str | None:
    """The address at which clients reach the servers, without a slash at its end. Raises InvalidInput."""
    if not url:
        return None
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and not parts.username and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise InvalidInput(
            f"{shown(url)} is not the address of a server",
            field="public_url",
            expected="http:// or https://, a host name, and perhaps a port and a path",
            hint="such as https://jobs.example.com",
        )
    return url.rstrip("/")


def require_free_port(host: str, port: int) -> None:
    """Raise an error if the port is in use, before anything is started."""
    if not 1 <= port <= 65535:
        raise InvalidInput(
            f"port {port} does not exist", field="port", expected="1 to 65535", hint="choose another with --port"
        )
    try:
        family, kind, protocol, address = addresses_of(host, port)[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            holder = _holder_of(port)
            raise Conflict(
                f"port {port} on {host or 'this machine'} is in use by {holder or 'another process'}",
                code="port_taken",
                field="port",
                hint="stop that process, or choose another port with --port",
            ) from error
        raise InvalidInput(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            field="host",
            hint="choose another address with --host and --port",
        ) from error


def _holder_of(port: int) -> str | None:
    """The process that listens on this port, if we may see it: its own user and root may."""
    inodes = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listeners(Path("/proc/net") / table, port)}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it has just ended
            if any(str(link.readlink()) in inodes for link in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                return f"process {process.name} ({command[:_LONGEST_COMMAND]})"
    return None


def _listeners(table: Path, port: int) -> list[str]:
    """The inodes of the sockets that listen on this port."""
    with suppress(OSError):
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
        return [row[9] for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port]
    return []


def local_url(host: str, port: int, tls: TlsFiles | None, ca: str | None) -> str:
    """The server's address for clients on this machine. With TLS it has a name that is in the certificate. Raises
    InvalidInput if they would not accept the certificate."""
    address = _FROM_HERE.get(host, host)
    if tls is None:
        return f"http://{_bracketed(address)}:{port}"
    certificate, client = load(tls), trusted_context(ca)
    first: ssl.SSLError | None = None
    for name in dict.fromkeys((address, "localhost", *certificate.names)):
        if "*" in name:
            continue
        try:
            handshake(certificate.context, client, name)
        except ssl.SSLError as error:
            first = first or error
            continue
        return f"https://{_bracketed(name)}:{port}"
    failure = tls_failure(first)
    raise InvalidInput(
        f"the worker on this machine cannot use {tls.cert}: {failure.why if failure else first}",
        field="tls_cert",
        hint=failure.hint if failure else None,
    )


Address = tuple[socket.AddressFamily, socket.SocketKind, int, Any]


def addresses_of(host: str, port: int) -> list[Address]:
    """Family, kind, protocol and address of each socket that listens on this host and port. Raises OSError."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, kind, protocol, address) for family, kind, protocol, _, address in found))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
