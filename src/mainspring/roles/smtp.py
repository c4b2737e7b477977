"""Sends one mail by SMTP (RFC 5321), over TLS, from the event loop.

smtplib blocks its thread, and a server that hangs would hold a thread for each mail. It also resolves the name itself,
after our check of the address. Here the connection goes to an address that was checked, and every wait can be
cancelled.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable
from contextlib import suppress

_LONGEST_LINE = 2000
_MOST_LINES = 100
_SIGN_IN = "AUTH PLAIN"


class SmtpError(Exception):
    """The server did not take the mail. final: it would not take it later either."""

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


class SmtpSession:
    """A connection to a server. `name` is its name in the certificate."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._name = name
        self._reader = reader
        self._writer = writer

    async def send(
        self,
        sender: str,
        recipients: list[str],
        content: bytes,
        *,
        starttls: Callable[[], ssl.SSLContext] | None,
        login: tuple[str, str] | None,
    ) -> None:
        """Send a mail whose lines end in CRLF. Raises SmtpError, OSError, or EOFError."""
        await self._answer(220)
        offered = await self._hello()
        if starttls is not None:
            if "STARTTLS" not in offered:
                raise SmtpError("the server does not offer STARTTLS", final=True)
            await self._say("STARTTLS", 220)
            await self._nothing_more()
            await self._writer.start_tls(starttls(), server_hostname=self._name)
            offered = await self._hello()
        if login is not None:
            plain = base64.b64encode("\0".join(("", *login)).encode()).decode()
            await self._say(f"AUTH PLAIN {plain}", 235, shown=_SIGN_IN)
        await self._say(f"MAIL FROM:<{sender}>", 250)
        for recipient in recipients:
            await self._say(f"RCPT TO:<{recipient}>", 250, 251)
        await self._say("DATA", 354)
        stuffed = content.replace(b"\r\n.", b"\r\n..")
        if stuffed.startswith(b"."):
            stuffed = b"." + stuffed
        self._writer.write(stuffed + (b"" if stuffed.endswith(b"\r\n") else b"\r\n") + b".\r\n")
        await self._writer.drain()
        await self._answer(250)
        with suppress(Exception):  # the mail is taken
            await self._say("QUIT", 221)

    def close(self) -> None:
        self._writer.transport.abort()

    async def _hello(self) -> set[str]:
        lines = await self._say("EHLO mainspring", 250)
        return {line.split()[0].upper() for line in lines if line.strip()}

    async def _say(self, command: str, *expected: int, shown: str | None = None) -> list[str]:
        if any(mark in command for mark in "\r\n\0"):
            raise SmtpError("a command has a line break in it", final=True)
        self._writer.write(command.encode("utf-8") + b"\r\n")
        await self._writer.drain()
        return await self._answer(*expected, after=shown or command.partition(":")[0])

    async def _nothing_more(self) -> None:
        """Raise if the server has sent more than it was asked for. Another machine on the way could have written it,
        and it would count as an answer that came over TLS."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0):  # what is there already is read without waiting
                if await self._reader.read(1):
                    raise SmtpError("the server sent more than its answer to STARTTLS")

    async def _answer(self, *expected: int, after: str = "") -> list[str]:
        """The texts of the lines of an answer."""
        texts: list[str] = []
        while len(texts) < _MOST_LINES:
            try:
                raw = await self._reader.readuntil(b"\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                raise SmtpError("the server closed the connection, or sent no SMTP") from None
            line = raw[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r\n")
            code, mark = line[:3], line[3:4]
            texts.append(line[4:])
            if mark != "-":
                break
        if not code.isdigit() or int(code) not in expected:
            said = " ".join("".join(c if c.isprintable() else " " for c in line).split())[:200]
            if after == _SIGN_IN:  # some servers repeat what they do not understand
                said = said[:3]
            at = f" to {after}" if after else ""
            raise SmtpError(f"the server answered{at}: {said}", final=code.startswith("5"))
        return texts
