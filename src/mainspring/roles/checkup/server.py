"""The server as a client sees it, from the outside in: reach, TLS, readiness, clock, token, version, problems."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from mainspring import __version__
from mainspring.domain.errors import Forbidden, MainspringError
from mainspring.kernel.clock import Clock
from mainspring.kernel.trust import tls_failure, travels_in_clear, trusted_context
from mainspring.roles.checkup.findings import Finding, error, ok, warning
from mainspring.sdk.client.client import Client

_PATIENCE = 5.0
_CERTIFICATE_DAYS = 14
_CLOCK_DRIFT = 2.0  # seconds; the header Date has whole seconds
_START = "start one with `mainspring up`, or name it with --url or MAINSPRING_URL"


def check_server(client: Client, clock: Clock) -> Iterator[Finding]:
    """Stops at the first address without an answer: what follows needs one."""
    for address in client.connection.addresses:
        found = list(_check_address(address, client.connection.ca, clock))
        yield from found
        if found[-1].severity == "error":
            return
    yield from _check_readiness(client)
    yield from _check_access(client)


def _check_address(address: str, ca: str | None, clock: Clock) -> Iterator[Finding]:
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    secure = parts.scheme == "https"
    context = trusted_context(ca) if secure else None
    connection = (
        HTTPSConnection(host, port, timeout=_PATIENCE, context=context)
        if secure
        else HTTPConnection(host, port, timeout=_PATIENCE)
    )
    try:
        connection.connect()
        certificate = connection.sock.getpeercert() if isinstance(connection.sock, ssl.SSLSocket) else None
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
    except (OSError, HTTPException) as failure:
        yield _unreachable(address, host, failure)
        return
    finally:
        connection.close()
    if answer.status != 200:
        yield error("reach", f"{address} answers {answer.status} to GET /healthz", "is it a Mainspring? check the port")
        return
    yield ok("reach", f"{address} answers")
    yield _tls_finding(address, certificate, clock)
    yield _clock_finding(answer.headers.get("Date"), clock)


def _unreachable(address: str, host: str, failure: Exception) -> Finding:
    if (problem := tls_failure(failure)) is not None:
        return error("TLS", f"{address}: {problem.why}", problem.hint)
    if isinstance(failure, socket.gaierror):
        return error("reach", f"the name {host} is unknown", "check the name in the URL, and DNS")
    if isinstance(failure, TimeoutError):
        return error("reach", f"{address} does not answer within {_PATIENCE:g} s", "check host, port and firewall")
    return error("reach", f"{address}: {getattr(failure, 'strerror', None) or failure}", _START)


def _tls_finding(address: str, certificate: object, clock: Clock) -> Finding:
    if not isinstance(certificate, dict) or "notAfter" not in certificate:
        if travels_in_clear(address):
            return warning(
                "TLS", f"tokens and payloads travel in clear to {address}", "serve HTTPS: --tls-cert and --tls-key"
            )
        return ok("TLS", "not needed on this machine")
    left = (ssl.cert_time_to_seconds(certificate["notAfter"]) - clock.wall().timestamp()) / 86_400
    if left < _CERTIFICATE_DAYS:
        return warning("TLS", f"the certificate ends in {left:.0f} days", "renew it; the server loads it by itself")
    return ok("TLS", f"the certificate is valid for {left:.0f} days")


def _clock_finding(date: str | None, clock: Clock) -> Finding:
    if date is None:
        return warning("clock", "the server tells no time", "a proxy in between may remove the header Date")
    told = parsedate_to_datetime(date).replace(tzinfo=UTC)
    drift = (clock.wall() - told).total_seconds()
    # The header is cut to seconds, and the answer was under way.
    if -_CLOCK_DRIFT < drift < _CLOCK_DRIFT + 1:
        return ok("clock", "this machine and the server agree")
    word = "ahead of" if drift > 0 else "behind"
    return warning("clock", f"this machine is {abs(drift):.0f} s {word} the server", "synchronise both clocks with NTP")


def _check_readiness(client: Client) -> Iterator[Finding]:
    try:
        seen = client.readiness()
    except MainspringError as failure:
        yield error("readiness", str(failure), "read the log of the server")
        return
    wrong = [f"{name}: {state}" for name, state in seen.checks.items() if state != "ok"]
    if seen.status == "ready":
        yield ok("readiness", "the server is ready")
    else:
        yield error("readiness", "; ".join(wrong) or seen.status, "read the log of the server")


def _check_access(client: Client) -> Iterator[Finding]:
    if client.connection.token is None:
        yield error("token", "there is no token", "give --token-file, or set MAINSPRING_TOKEN_FILE")
        return
    try:
        seen = client.overview()
    except Forbidden as failure:
        yield ok("token", f"the server knows it, and it may not read the overview: {failure}")
        return
    except MainspringError as failure:
        yield error("token", str(failure), failure.hint or "create one with `mainspring token add`")
        return
    yield ok("token", "the server accepts it")
    if seen.version == __version__:
        yield ok("version", f"{seen.version}, as this command")
    else:
        yield warning(
            "version", f"the server is {seen.version}, this command {__version__}",
            "install the same version in both places; a server may be newer than its clients",
        )  # fmt: skip
    if not seen.workers.get("LIVE"):
        yield warning("workers", "no worker is live", "start one: mainspring worker --server URL --token-file FILE")
    else:
        yield ok("workers", f"{seen.workers['LIVE']} live, {seen.busy} of {seen.slots} slots busy")
    for problem in seen.problems:
        yield warning("problem", problem, "`mainspring overview` shows more")
