"""Calls providers of OpenID Connect with the guarded client of http tasks, within bounded time and size."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.light_httpx import httpx
from mainspring.kernel.version import VERSION
from mainspring.kinds.http.address_guard import AddressRefused
from mainspring.kinds.http.connection import Origin, TransportError
from mainspring.kinds.http.network import HttpConnections, Resolve
from mainspring.operations.people.provider_transport import NotReached, ProviderAnswer
from mainspring.roles.provider_guard import provider_guard

_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_MOST_BYTES = 512 * 1024
_PORTS = {"http": 80, "https": 443}


class NetworkProviderTransport:
    def __init__(
        self, *, resolve: Resolve | None = None, clock: LoopClock = SYSTEM_CLOCK, seconds: float = _SECONDS
    ) -> None:
        self._resolve = resolve
        self._clock = clock
        self._seconds = seconds
        self._connections: dict[str | None, HttpConnections] = {}

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, allow: str | None
    ) -> ProviderAnswer:
        try:
            async with self._clock.timeout(self._seconds):
                return await self._ask(method, url, headers, body, allow)
        except TimeoutError:
            raise NotReached(f"no answer within {self._seconds:g} s") from None
        except AddressRefused as refusal:
            raise NotReached(str(refusal)) from None
        except TransportError as error:
            raise NotReached(str(error) or type(error).__name__) from None

    def close(self) -> None:
        for connections in self._connections.values():
            connections.close()

    async def _ask(
        self, method: str, address: str, headers: Mapping[str, str], body: bytes, allow: str | None
    ) -> ProviderAnswer:
        try:
            url = httpx.URL(address)
        except httpx.InvalidURL:
            raise NotReached("what it names is not an address") from None
        if url.scheme not in _PORTS or not url.host or url.userinfo:
            raise NotReached("what it names is not an address")
        if allow not in self._connections:
            self._connections[allow] = HttpConnections(provider_guard(allow), resolve=self._resolve, clock=self._clock)
        origin = Origin(url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme])
        connection = await self._connections[allow].take(origin, _CONNECT_SECONDS, fresh=True)
        try:
            answer = await connection.ask(
                method, url.raw_path,
                [
                    ("Host", url.netloc.decode("ascii")), ("User-Agent", f"Mainspring/{VERSION}"),
                    ("Accept-Encoding", "identity"), *headers.items(), ("Content-Length", str(len(body))),
                ],
                body, _MOST_BYTES,
            )  # fmt: skip
        finally:
            connection.close()
        if answer.cut:
            raise NotReached(f"its answer has more than {_MOST_BYTES} bytes")
        return ProviderAnswer(answer.status, answer.body)
