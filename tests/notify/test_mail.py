"""Mail: over TLS, with a checked certificate, and without a header that somebody else has written."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email import message_from_bytes, policy
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword

from mainspring.domain.notify.deliveries import MailDelivery, delivery_of
from mainspring.domain.notify.messages import Message
from mainspring.operations.notify.transport import NotSent
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.notify_transport import NetworkTransport
from mainspring.wire.notifications import MessageItem
from tests.certificates import Authority, Issued

from .conftest import trusting

pytestmark = pytest.mark.anyio

SETTINGS = {"host": "localhost", "sender": "m@example.com", "to": ["a@example.com", "b@example.com"], "user": "u"}
EVIL = "nightly\r\nBcc: thief@example.com\n\n.\r\nQUIT"


class Inbox:
    def __init__(self) -> None:
        self.mails: list[Envelope] = []
        self.answer = "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:  # noqa: N802 - its name
        self.mails.append(envelope)
        return self.answer


def login(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
    known = isinstance(data, LoginPassword) and (data.login, data.password) == (b"u", b"p")
    return AuthResult(success=known, handled=False)


@asynccontextmanager
async def a_mail_server(issued: Issued, tls: str) -> AsyncIterator[tuple[int, Inbox]]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.cert, issued.key)
    inbox = Inbox()

    def factory() -> SMTP:
        starts = {"tls_context": context, "require_starttls": True} if tls == "starttls" else {}
        return SMTP(
            inbox, hostname="localhost", authenticator=login, auth_required=tls == "starttls",
            auth_require_tls=tls == "starttls", **starts,
        )  # fmt: skip

    loop = asyncio.get_running_loop()
    server = await loop.create_server(factory, "127.0.0.1", 0, ssl=context if tls == "tls" else None)
    try:
        yield server.sockets[0].getsockname()[1], inbox
    finally:
        server.close()


def a_message(subject: str = "job nightly") -> Message:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    item = MessageItem("failure", subject, now, count=3, reason=f"ValueError: {EVIL}", path="/ui/jobs/nightly")
    return Message("0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11", "default", "g", now, [item], url="https://j.example.com")


def a_mail(port: int, tls: str, password: str = "p", subject: str = "job nightly") -> MailDelivery:
    settings = {**SETTINGS, "port": port, "tls": tls}
    made = delivery_of("mail", settings, {"password": password}, a_message(subject), 0)
    assert isinstance(made, MailDelivery)
    return made


@pytest.mark.parametrize("tls", ["starttls", "tls"])
async def test_a_mail_is_sent_over_tls_to_all_recipients(authority: Authority, tls: str) -> None:
    issued = authority.issue("mail", "DNS:localhost")
    transport = NetworkTransport(notify_guard("localhost"), tls=lambda: trusting(authority.ca))
    async with a_mail_server(issued, tls) as (port, inbox):
        await transport.deliver(a_mail(port, tls, subject=f"job {EVIL}"))
        with pytest.raises(NotSent) as refused:
            await transport.deliver(a_mail(port, tls, "wrong"))
        assert (refused.value.final, str(refused.value).startswith("the server answered to AUTH PLAIN: 535")) == (
            True,
            True,
        )
    [envelope] = inbox.mails
    assert envelope.rcpt_tos == SETTINGS["to"]
    assert isinstance(envelope.content, bytes)
    mail = message_from_bytes(envelope.content, policy=policy.default)
    assert mail["Subject"] == "[Mainspring] job nightly Bcc: thief@example.com . QUIT failed (3 times)"
    assert mail["Message-ID"] == "<0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11@mainspring>"
    assert mail["Bcc"] is None
    assert "https://j.example.com/ui/jobs/nightly" in mail.get_content()
    assert "since: 2030-01-01T00:00:00Z, 3 times" in mail.get_content()


async def test_a_certificate_that_nobody_knows_is_refused_before_the_password(authority: Authority) -> None:
    issued = authority.issue("mail", "DNS:localhost")
    transport = NetworkTransport(notify_guard("localhost"), tls=ssl.create_default_context)
    for tls in ("starttls", "tls"):
        async with a_mail_server(issued, tls) as (port, inbox):
            with pytest.raises(NotSent) as refused:
                await transport.deliver(a_mail(port, tls))
        assert "certificate" in str(refused.value), tls
        assert inbox.mails == []


async def test_a_server_without_tls_gets_no_password_and_one_that_refuses_for_now_is_asked_again(
    authority: Authority,
) -> None:
    issued = authority.issue("mail", "DNS:localhost")
    transport = NetworkTransport(notify_guard("localhost"), tls=lambda: trusting(authority.ca))
    async with a_mail_server(issued, "none") as (port, inbox):
        with pytest.raises(NotSent) as refused:
            await transport.deliver(a_mail(port, "starttls"))
    assert (str(refused.value), refused.value.final) == ("the server does not offer STARTTLS", True)
    assert inbox.mails == []
    async with a_mail_server(issued, "tls") as (port, inbox):
        inbox.answer = "451 try again later"
        with pytest.raises(NotSent) as refused:
            await transport.deliver(a_mail(port, "tls"))
    assert (str(refused.value), refused.value.final) == ("the server answered: 451 try again later", False)


async def test_what_comes_with_the_answer_to_starttls_does_not_count_as_sent_over_tls(authority: Authority) -> None:
    """Whoever is on the way could write all answers that are still to come."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issued = authority.issue("mail", "DNS:localhost")
    context.load_cert_chain(issued.cert, issued.key)
    later = b"250 STARTTLS\r\n235 ok\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 ok\r\n"
    over_tls: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 me\r\n")
        await reader.readline()
        writer.write(b"250 STARTTLS\r\n")
        await reader.readline()
        writer.write(b"220 go\r\n" + later)
        try:
            await writer.start_tls(context)
            over_tls.append(await reader.read(1000))
        except (OSError, EOFError):
            pass
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        transport = NetworkTransport(notify_guard("localhost"), tls=lambda: trusting(authority.ca))
        with pytest.raises(NotSent, match="more than its answer to STARTTLS") as refused:
            await transport.deliver(a_mail(server.sockets[0].getsockname()[1], "starttls"))
        transport.close()
    assert not refused.value.final and not any(over_tls)
