"""The server's certificate: checked when it is loaded, and loaded again when its files change.

A new certificate is used for new connections; existing ones keep theirs. If the new files cannot be used, for example
because only one of the two was written yet, the old certificate stays in use.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.logs import get_logger
from mainspring.kernel.trust import tls_failure

log = get_logger("certificate")

# For TLS 1.2: forward secrecy and authenticated encryption. All ciphers of TLS 1.3 have both.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
_OPTIONS = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
_RELOAD_EVERY = 1.0
_ROUNDS = 10

Version = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The certificate with its chain, and its key, in PEM format. Both may be the same file."""

    cert: Path
    key: Path

    def version(self) -> Version | None:
        """Changes when a file is written or replaced. None while one is missing."""
        try:
            found = [path.stat() for path in (self.cert, self.key)]
        except OSError:
            return None
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


@dataclass(frozen=True, slots=True)
class LoadedCertificate:
    """`names`: the host names and addresses that it is for."""

    context: ssl.SSLContext
    names: tuple[str, ...]
    expires: str


class ServerCertificate:
    """`context` accepts connections with the latest certificate. A periodic task."""

    name = "certificate"
    interval = _RELOAD_EVERY

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._version = files.version()
        self._latest = self._load()
        self.context = self._latest.context
        self.context.sni_callback = self._choose  # called in every handshake, also without a server name

    async def run_once(self) -> bool:
        """Load the files again if they have changed. True if the new certificate is in use."""
        version = self._files.version()
        if version == self._version:
            return False
        self._version = version
        try:
            self._latest = await asyncio.to_thread(self._load)  # the disk may be slow
        except InvalidInput as error:
            log.error("the new certificate cannot be used; the old one stays in use", error=str(error), hint=error.hint)
            return False
        return True

    def _load(self) -> LoadedCertificate:
        loaded = load(self._files)
        log.info("certificate", file=str(self._files.cert), names=loaded.names, expires=loaded.expires)
        return loaded

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._latest.context


def load(files: TlsFiles) -> LoadedCertificate:
    """Load and check a certificate. Raises InvalidInput if no client could use it, whatever it trusts."""
    for field, path in (("tls_cert", files.cert), ("tls_key", files.key)):
        _require_file(path, field)
    context = _new_context()
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
        seen = handshake(context, _trusting_only(files.cert), None)
    except (ssl.SSLError, OSError) as error:
        raise _unusable(error, files) from None
    names = tuple(value for kind, value in seen.get("subjectAltName", ()) if kind in ("DNS", "IP Address"))
    return LoadedCertificate(context, names, str(seen.get("notAfter", "")))


def _require_file(path: Path, field: str) -> None:
    """Raise InvalidInput if the file cannot be read. A pipe or a device could be read without end."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}", field=field) from None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise InvalidInput(f"cannot read {path}: it is not a regular file", field=field)
    finally:
        os.close(opened)


def _trusting_only(cert: Path) -> ssl.SSLContext:
    """A client that trusts this certificate itself: its issuer may be known only to the real clients."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cert)
    return client


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> dict[str, Any]:
    """Let the two meet in memory; returns the server's certificate as the client sees it. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=name)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_ROUNDS):
        done = 0
        for end in (asking, answering):
            try:
                end.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
        if done == 2:
            break
    return dict(asking.getpeercert() or {})


def _unusable(error: OSError, files: TlsFiles) -> InvalidInput:
    failure = tls_failure(error)
    if failure is not None:
        return InvalidInput(f"{files.cert}: {failure.why}", field="tls_cert", hint=failure.hint)
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        why = f"the key {files.key} does not belong to the certificate {files.cert}"
    else:
        why = f"{files.cert} and {files.key} are not a certificate and its key"
    hint = "name the certificate with its chain, and its key without a password, both in PEM format"
    return InvalidInput(why, field="tls_cert", hint=hint)


def _no_password() -> str:
    """Return an empty password. Without this function, OpenSSL asks on the terminal and waits."""
    return ""


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= _OPTIONS
    context.set_alpn_protocols(["http/1.1"])
    return context
