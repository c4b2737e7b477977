"""The request of an http task: headers of the run, headers of the job, and what a redirect changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.run_key import key_of, rfc3339
from mainspring.domain.texts import shown
from mainspring.kernel.light_httpx import httpx
from mainspring.kernel.version import VERSION
from mainspring.kinds.http.address_guard import origin_text
from mainspring.kinds.http.call import HttpCall
from mainspring.kinds.http.connection import Origin
from mainspring.wire.exchange import RunOrder
from mainspring.wire.secrets import SecretRef, references_in
from mainspring.wire.trace_context import traceparent
from mainspring.worker.execution.run_secrets import MissingSecret, filled, value_of

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*\Z")
_PORTS = {"http": 80, "https": 443}
_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})
# Only these headers of the job are sent to another origin: any other may be a credential for the first one.
_FOR_ANYBODY = frozenset({"accept", "accept-language", "content-type", "content-language", "user-agent"})


class BadAddress(ValueError):
    """The URL, or the target of a redirect, cannot be called."""


@dataclass(slots=True)
class HttpRequest:
    """One request of a chain of redirects. `own` are the names of the headers of the job, in lower case.
    `secret_content`: there are secrets in the body, which is for the first origin only."""

    method: str
    url: httpx.URL
    headers: dict[str, str]
    own: frozenset[str]
    content: bytes
    secret_content: bool = False

    @property
    def origin(self) -> Origin:
        scheme = self.url.scheme
        return Origin(scheme, self.url.raw_host.decode("ascii"), self.url.port or _PORTS[scheme])

    @property
    def where(self) -> str:
        """The address for logs: without the query, which may contain secrets."""
        return origin_text(*self.origin) + self.url.raw_path.decode("ascii").partition("?")[0]

    def head(self) -> list[tuple[str, str]]:
        """All headers, Host first."""
        headers = [("Host", self.url.netloc.decode("ascii")), *self.headers.items()]
        if self.content or self.method in _WITH_LENGTH:
            headers.append(("Content-Length", str(len(self.content))))
        return headers

    def redirected(self, status: int, location: str) -> HttpRequest:
        """The next request, by RFC 9110: after 303, and after 301 and 302 to a POST, a GET without a body. Raises
        BadAddress."""
        try:
            url = self.url.join(location)
        except httpx.InvalidURL as error:
            raise BadAddress(f"{self.where} redirects to no address: {error}") from None
        if not _can_be_called(url):
            raise BadAddress(f"{self.where} redirects to {shown(str(url).partition('?')[0])}, which is not followed")
        after = HttpRequest(self.method, url, dict(self.headers), self.own, self.content, self.secret_content)
        if (status == 303 and self.method != "HEAD") or (status in (301, 302) and self.method == "POST"):
            after.method, after.content = "GET", b""
            after._drop(lambda name: name.startswith("content-"))
        if after.origin != self.origin and after.content and after.secret_content:
            raise BadAddress(f"{self.where} redirects to another origin, and a body with secrets is not sent there")
        if after.origin != self.origin:
            after._drop(lambda name: name in self.own and name not in _FOR_ANYBODY)
        return after

    def _drop(self, unwanted: Callable[[str], bool]) -> None:
        self.headers = {name: value for name, value in self.headers.items() if not unwanted(name.lower())}


def first_request(call: HttpCall, order: RunOrder) -> HttpRequest:
    """The request that the job asks for. Raises BadAddress."""
    try:
        url = httpx.URL(call.url)
    except httpx.InvalidURL as error:
        raise BadAddress(f"http.url is no address: {error}") from None
    if not _can_be_called(url):
        raise BadAddress(f"http.url is no address: {shown(call.url)}")
    content = b""
    given, body, secret_content = _filled(call, order)
    own = frozenset(name.lower() for name in call.headers)
    headers = {
        name: value
        for name, value in {"Accept": "*/*", "User-Agent": f"Mainspring/{VERSION}", **run_headers(order)}.items()
        if name.lower() not in own
    }
    if body is not None:
        is_text = isinstance(body, str)
        content = body.encode() if is_text else msgspec.json.encode(body)
        if "content-type" not in own:
            headers["Content-Type"] = "text/plain; charset=utf-8" if is_text else "application/json"
    method = call.method or ("GET" if call.body is None else "POST")
    return HttpRequest(method, url, headers | given, own, content, secret_content)


def _filled(call: HttpCall, order: RunOrder) -> tuple[dict[str, str], Any, bool]:
    """The headers and the body with the values of secrets, and whether the body has some. Raises MissingSecret, and
    BadAddress if the call goes elsewhere than that of the job: a replay may have another payload, and a payload may
    have come from another run."""
    refers = any(isinstance(value, SecretRef) for value in call.headers.values())
    secret_content = next(references_in(call.body, ""), None) is not None
    stored = None if order.setup is None else order.setup.http
    if (refers or secret_content) and (stored is None or _origin(stored.url) != _origin(call.url)):
        raise BadAddress("http.url is not the address of the job, and its secrets are not sent elsewhere")
    headers = {}
    for name, value in call.headers.items():
        text = value if isinstance(value, str) else value_of(order, value.name, f"http.headers.{name}").strip()
        if not isinstance(value, str) and not _HEADER_VALUE.match(text):
            raise MissingSecret(f"http.headers.{name}: the secret {value.name!r} is not one line of plain ASCII")
        headers[name] = text
    return headers, filled(order, call.body, "http.body") if secret_content else call.body, secret_content


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def _can_be_called(url: httpx.URL) -> bool:
    return url.scheme in _PORTS and bool(url.raw_host) and 0 < (url.port or _PORTS[url.scheme]) < 65536


def run_headers(order: RunOrder) -> dict[str, str]:
    """Headers that describe the run, like the environment variables of a shell run."""
    key = key_of(order)
    return {
        # Bodies are read up to a limit and never decompressed: a few compressed bytes can be gigabytes.
        "Accept-Encoding": "identity",
        "Idempotency-Key": key,
        "Mainspring-Job-Id": order.job_id,
        "Mainspring-Run-Id": str(order.run_id),
        "Mainspring-Attempt": str(order.attempt),
        "Mainspring-Scheduled-For": rfc3339(order.scheduled_for),
        "Mainspring-Idempotency-Key": key,
        "traceparent": traceparent(order.run_id, order.fence),
        **({"Mainspring-Callback-Url": order.callback} if order.callback else {}),
    }
