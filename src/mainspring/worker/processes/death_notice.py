"""Sends the death notice. The parent watchdog imports this module, and with it HTTP, only when a worker has died."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from mainspring.kernel.trust import trusted_context
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER

PATH = "/v1/exchange/gone"
MOST_STARTED = 10_000  # more are not accepted: then the notice does not say what had started
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0
# A server that is stopped accepts connections and does not answer. The next one gets the notice soon.
_FIRST_TIMEOUT, _LONGEST_TIMEOUT = 1.0, 8.0
# Answers that may be different later: the server has too much to do, or its database is unavailable.
_TRY_AGAIN = (408, 425, 429)
_NOT_UNDERSTOOD = (400, 422)


def send(notice: dict[str, Any], exit_text: str, until: Callable[[], float]) -> bool:
    """Send the notice to one server after the other until one takes it, all have refused it, or `until` (monotonic)
    has passed, which is asked for again each time."""
    servers: list[str] = notice.pop("servers")
    ca: str | None = notice.pop("ca", None)
    if len(notice.get("started", ())) > MOST_STARTED:
        del notice["started"]
    cause: str | None = notice.pop("cause", None)
    plain = {**notice, "exit": exit_text}  # with the secret, for servers of older versions
    body = json.dumps(plain if cause is None else {**plain, "cause": cause}).encode()
    proof = {WORKER_HEADER: notice["worker_id"], SECRET_HEADER: notice["secret"]}
    pause, timeout = _FIRST_PAUSE, _FIRST_TIMEOUT
    while servers:
        for server in tuple(servers):
            status = _post(server, ca, body, proof, timeout)
            if status in _NOT_UNDERSTOOD and cause is not None:  # by a server that does not know `cause`
                status = _post(server, ca, json.dumps(plain).encode(), proof, timeout)
            if status is not None and 200 <= status < 300:
                return True
            if status is not None and 400 <= status < 500 and status not in _TRY_AGAIN:
                servers.remove(server)  # it does not know the route, the worker or the secret
        if time.monotonic() + pause >= until():
            break
        if servers:
            time.sleep(pause)
        pause, timeout = min(pause * 2, _LONGEST_PAUSE), min(timeout * 2, _LONGEST_TIMEOUT)
    return False


def _post(server: str, ca: str | None, body: bytes, proof: dict[str, str], timeout: float) -> int | None:
    """The status of the answer; None if there was none."""
    try:
        parts = urlsplit(server)
        connection = _connection(parts.scheme, parts.hostname or "", parts.port, ca, timeout)
        try:
            headers = {"Content-Type": "application/json", "Host": parts.netloc.rpartition("@")[2], **proof}
            connection.request("POST", parts.path.rstrip("/") + PATH, body, headers)
            return connection.getresponse().status
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError):
        return None


def _connection(scheme: str, host: str, port: int | None, ca: str | None, timeout: float) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=trusted_context(ca))
    return http.client.HTTPConnection(host, port, timeout=timeout)
