"""Where a server listens: tokens travel through TLS, or they do not leave the machine, or the operator allowed it."""

from __future__ import annotations

import errno
import socket
import ssl
from pathlib import Path
from typing import Any

from mainspring.api.certificate import TlsFiles, handshake, load
from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.kernel.trust import is_loopback, tls_failure, trusted_context

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


def require_free_port(host: str, port: int) -> None:
    """Raise an error if the port is in use, before anything is started."""
    if not 1 <= port <= 65535:
        raise InvalidInput(f"Port {port} does not exist. Choose one from 1 to 65535 with --port.", field="port")
    try:
        family, kind, protocol, address = addresses_of(host, port)[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"Port {port} on {host} is in use by another process. Stop it, or choose another port with --port.",
                code="port_taken",
                field="port",
            ) from error
        raise InvalidInput(
            f"Cannot listen on {host} port {port}: {error}. Choose another address with --host and --port.",
            field="host",
        ) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
