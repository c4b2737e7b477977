"""Sends messages over the network: HTTP with the guarded client of http tasks, and SMTP with the same checks."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from mainspring.domain.notify.deliveries import AppriseDelivery, Delivery, HttpDelivery, MailDelivery, without_hidden
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.light_httpx import httpx
from mainspring.kernel.version import VERSION
from mainspring.kinds.http.address_guard import AddressGuard, AddressRefused
from mainspring.kinds.http.answer import NOT_WORTH_RETRYING, retry_after
from mainspring.kinds.http.connection import ConnectError, ConnectTimeout, Origin, TransportError, in_words
from mainspring.kinds.http.network import HttpConnections, Resolve
from mainspring.operations.notify.transport import NotSent, Sent
from mainspring.roles.apprise.sender import AppriseSender, apprise_schemes
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.smtp import SmtpError, SmtpSession

_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
_BODY_BYTES = 16 * 1024
_SHOWN = 200
_PORTS = {"http": 80, "https": 443}


class NetworkTransport:
    """`deliver` sends one message. Redirects are not followed: a channel names the address itself."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        resolve: Resolve | None = None,
        clock: LoopClock = SYSTEM_CLOCK,
        seconds: float = _SECONDS,
        tls: Callable[[], ssl.SSLContext] = httpx.create_ssl_context,
        apprise: AppriseSender | None = None,
    ) -> None:
        self._apprise = apprise or AppriseSender(frozenset(), None)
        self._connections = HttpConnections(guard, resolve=resolve, clock=clock)
        self._clock = clock
        self._seconds = seconds
        self._tls = tls

    async def deliver(self, delivery: Delivery) -> Sent:
        """Raises NotSent with the reason, in which there is no secret."""
        try:
            async with self._clock.timeout(self._seconds):
                if isinstance(delivery, HttpDelivery):
                    return await self._post(delivery)
                if isinstance(delivery, AppriseDelivery):
                    return await self._apprise.deliver(delivery)
                return await self._mail(delivery)
        except TimeoutError:
            raise NotSent(f"no answer within {self._seconds:g} s") from None
        except AddressRefused as refusal:
            raise NotSent(str(refusal), final=True) from None
        except TransportError as error:
            raise NotSent(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None

    def check_apprise(self, url: str) -> None:
        self._apprise.check_url(url)

    def close(self) -> None:
        self._connections.close()

    async def _post(self, delivery: HttpDelivery) -> Sent:
        try:
            url = httpx.URL(delivery.url)
        except httpx.InvalidURL:
            raise NotSent("the URL of the channel is not an address", final=True) from None
        if url.scheme not in _PORTS or not url.host or url.userinfo:
            raise NotSent("the URL of the channel is not an address", final=True)
        origin = Origin(url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme])
        headers = [
            ("Host", url.netloc.decode("ascii")), ("User-Agent", f"Mainspring/{VERSION}"), ("Accept", "*/*"),
            ("Accept-Encoding", "identity"), *delivery.headers.items(), ("Content-Length", str(len(delivery.body))),
        ]  # fmt: skip
        connection = await self._connections.take(origin, _CONNECT_SECONDS, fresh=True)
        try:
            answer = await connection.ask("POST", url.raw_path, headers, delivery.body, _BODY_BYTES)
        finally:
            connection.close()
        if 200 <= answer.status < 300:
            return Sent(answer.status)
        text = without_hidden(answer.body[:2000].decode("utf-8", "replace"), delivery.hidden)
        words = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_SHOWN]
        said = f"HTTP {answer.status}" + (f": {words}" if words else "")
        final = answer.status in NOT_WORTH_RETRYING or 300 <= answer.status < 400
        raise NotSent(said, final=final, status=answer.status, after=retry_after(answer.headers, self._clock.wall()))

    async def _mail(self, delivery: MailDelivery) -> Sent:
        origin = Origin("smtp", delivery.host, delivery.port)
        addresses = await self._connections.addresses(origin)
        error: TransportError = ConnectError(f"{delivery.host} has no address")
        for address in addresses:
            try:
                async with self._clock.timeout(_CONNECT_SECONDS):
                    session = await self._open(delivery, address)
            except TimeoutError:
                error = ConnectTimeout(f"no connection to {delivery.host} port {delivery.port}")
                continue
            except (OSError, ValueError) as failure:
                error = ConnectError(f"no connection to {delivery.host} port {delivery.port}: {in_words(failure)}")
                continue
            return await self._send(session, delivery)
        raise error

    async def _open(self, delivery: MailDelivery, address: str) -> SmtpSession:
        name = delivery.host.rstrip(".")
        if delivery.tls == "tls":
            reader, writer = await asyncio.open_connection(
                address, delivery.port, ssl=self._tls(), server_hostname=name
            )
        else:
            reader, writer = await asyncio.open_connection(address, delivery.port)
        return SmtpSession(name, reader, writer)

    async def _send(self, session: SmtpSession, delivery: MailDelivery) -> Sent:
        login = None
        if delivery.user is not None and delivery.password is not None:
            login = (delivery.user, delivery.password)
        starttls = self._tls if delivery.tls == "starttls" else None
        try:
            await session.send(delivery.sender, delivery.recipients, delivery.content, starttls=starttls, login=login)
        except SmtpError as error:
            raise NotSent(str(error), final=error.final) from None
        except (OSError, ValueError) as error:
            raise NotSent(f"the connection broke: {in_words(error)}") from None
        finally:
            session.close()
        return Sent()


def notify_transport(allowed: str | None, schemes: str | None) -> NetworkTransport:
    """With --notify-allow and --apprise-schemes. Raises InvalidInput that names the bad entry."""
    return NetworkTransport(notify_guard(allowed), apprise=AppriseSender(apprise_schemes(schemes), allowed))
