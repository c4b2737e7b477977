"""Calls as HTTP requests, and responses as answers. Both clients use it."""

from __future__ import annotations

import ssl
from typing import Any, TypedDict

from mainspring.kernel.light_httpx import httpx
from mainspring.kernel.trust import tls_failure, trusted_context
from mainspring.sdk.client.connection import ServerConnection
from mainspring.sdk.client.core import Call, NoAnswer, ServerAnswer

_NEVER_REACHED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_PERHAPS_TLS = "if the server uses TLS, write https:// instead of http://; otherwise see its log"
_SILENCE = 40.0  # a streaming server sends something every 15 seconds


class _HttpSettings(TypedDict):
    headers: dict[str, str]
    timeout: httpx.Timeout
    trust_env: bool
    mounts: dict[str, None]
    verify: ssl.SSLContext


class _StreamRequest(TypedDict):
    method: str
    url: str
    params: dict[str, str]
    headers: dict[str, str]
    timeout: httpx.Timeout


def http_settings(connection: ServerConnection, timeout: float) -> _HttpSettings:
    headers = {"accept": "application/json"}
    if connection.token is not None:
        headers["authorization"] = f"Bearer {connection.token}"
    return {
        "headers": headers,
        "timeout": httpx.Timeout(timeout, connect=min(5.0, timeout)),
        # Proxy settings of the environment are not used for `direct` addresses: None is the transport without a proxy.
        "trust_env": len(connection.direct) < len(connection.addresses),
        "mounts": dict.fromkeys(connection.direct),
        "verify": _trusted(connection),
    }


def _trusted(connection: ServerConnection) -> ssl.SSLContext:
    """The trusted authorities; none if no address uses TLS. Loading them takes 25 ms of CPU, a tenth of a command on
    this machine."""
    if any(address.startswith("https:") for address in connection.addresses):
        return trusted_context(connection.ca)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def build_request(http: httpx.Client | httpx.AsyncClient, address: str, call: Call[Any]) -> httpx.Request:
    headers = dict(call.headers)
    if call.body is not None:
        headers["content-type"] = "application/json"
    url = address + call.path
    return http.build_request(call.method, url, params=call.params or None, content=call.body, headers=headers)


def stream_request(address: str, call: Call[Any]) -> _StreamRequest:
    return {
        "method": call.method,
        "url": address + call.path,
        "params": dict(call.params),
        "headers": dict(call.headers),
        "timeout": httpx.Timeout(_SILENCE, connect=5.0),
    }


def answer_of(response: httpx.Response) -> ServerAnswer:
    return ServerAnswer(response.status_code, response.content, response.headers)


def no_answer(error: httpx.TransportError) -> NoAnswer:
    failure = tls_failure(error)
    if failure is not None:
        return NoAnswer(failure.why, reached=False, hint=failure.hint)
    why, reached = str(error) or type(error).__name__, not isinstance(error, _NEVER_REACHED)
    plain = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and error.request.url.scheme == "http"
    refused = isinstance(error, httpx.ConnectError)
    return NoAnswer(why, reached, refused, guess=_PERHAPS_TLS if plain else None)
