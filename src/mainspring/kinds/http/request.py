"""The request of an http task: headers of the run, headers of the job, and what a redirect changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from mainspring.domain.run_key import key_of, rfc3339
from mainspring.domain.texts import shown
from mainspring.kernel.light_httpx import httpx
from mainspring.kernel.version import VERSION
from mainspring.kinds.http.address_guard import origin_text
from mainspring.kinds.http.call import HttpCall
from mainspring.kinds.http.connection import Origin
from mainspring.wire.exchange import RunOrder

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})
# Only these headers of the job are sent to another origin: any other may be a credential for the first one.
_FOR_ANYBODY = frozenset({"accept", "accept-language", "content-type", "content-language", "user-agent"})


class BadAddress(ValueError):
    """The URL, or the target of a redirect, cannot be called."""


@dataclass(slots=True)
class HttpRequest:
    """One request of a chain of redirects. `own` are the names of the headers of the job, in lower case."""

    method: str
    url: httpx.URL
    headers: dict[str, str]
    own: frozenset[str]
    content: bytes

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
        after = HttpRequest(self.method, url, dict(self.headers), self.own, self.content)
        if (status == 303 and self.method != "HEAD") or (status in (301, 302) and self.method == "POST"):
            after.method, after.content = "GET", b""
            after._drop(lambda name: name.startswith("content-"))
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
    own = frozenset(name.lower() for name in call.headers)
    headers = {
        name: value
        for name, value in {"Accept": "*/*", "User-Agent": f"Mainspring/{VERSION}", **run_headers(order)}.items()
        if name.lower() not in own
    }
    if call.body is not None:
        is_text = isinstance(call.body, str)
        content = call.body.encode() if is_text else msgspec.json.encode(call.body)
        if "content-type" not in own:
            headers["Content-Type"] = "text/plain; charset=utf-8" if is_text else "application/json"
    method = call.method or ("GET" if call.body is None else "POST")
    return HttpRequest(method, url, headers | call.headers, own, content)


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
        "traceparent": traceparent(order),
    }


def traceparent(order: RunOrder) -> str:
    """W3C trace context: all attempts of a run are one trace, and each claim of it is a span."""
    span = sha256(f"{order.run_id}{order.fence}".encode()).digest()[:8]
    return f"00-{order.run_id.hex}-{span.hex()}-01"
