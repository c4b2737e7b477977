"""Passwords: hashed with argon2id, two at a time.

A hash takes 64 MiB and up to a second of a processor. So a server makes two at a time, and refuses others at once:
those who guess cannot use it up.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from mainspring.domain.errors import TooManyRequests

R = TypeVar("R")

AT_A_TIME = 2
# One lane: with several, two hashes at the same time wait for each other for ever in OpenSSL 3.
_PASSES, _LANES, _KIBIBYTES = 3, 1, 64 * 1024
_HASH = re.compile(r"\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)\Z")


class Passwords:
    def __init__(self) -> None:
        self._busy = 0
        self._threads = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="passwords")
        self._nobodys: str | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Within it one password after the other can be hashed. Raises TooManyRequests if two are under way."""
        if self._busy >= AT_A_TIME:
            raise TooManyRequests(
                f"this server checks {AT_A_TIME} passwords at a time",
                code="passwords_busy",
                hint="try again in a second",
            )
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    async def hash(self, password: str) -> str:
        """The text to store."""
        return await self._in_thread(_hash, password)

    async def matches(self, password: str, stored: str | None) -> bool:
        """Whether it is the password that was stored. Without one it takes as long, and is False."""
        if stored is None:
            if self._nobodys is None:
                self._nobodys = await self._in_thread(_hash, secrets.token_urlsafe())
            await self._in_thread(_matches, password, self._nobodys)
            return False
        return await self._in_thread(_matches, password, stored)

    async def _in_thread(self, work: Callable[..., R], *arguments: str) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


def _hash(password: str) -> str:
    salt = secrets.token_bytes(16)
    made = _derive(password, salt, 32, _PASSES, _LANES, _KIBIBYTES)
    return f"$argon2id$v=19$m={_KIBIBYTES},t={_PASSES},p={_LANES}${_encode(salt)}${_encode(made)}"


def _matches(password: str, stored: str) -> bool:
    found = _HASH.match(stored)
    if found is None:
        return False
    memory, passes, lanes = (int(found[number]) for number in (1, 2, 3))
    salt, expected = _decode(found[4]), _decode(found[5])
    return hmac.compare_digest(_derive(password, salt, len(expected), passes, lanes, memory), expected)


def _derive(password: str, salt: bytes, length: int, passes: int, lanes: int, memory: int) -> bytes:
    made = Argon2id(salt=salt, length=length, iterations=passes, lanes=lanes, memory_cost=memory)
    return made.derive(unicodedata.normalize("NFC", password).encode(errors="surrogatepass"))


def _encode(value: bytes) -> str:
    return b64encode(value).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4))
