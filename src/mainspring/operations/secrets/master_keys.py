"""The master keys of a server. The first one encrypts; all of them decrypt. They are read again while the server runs.

The id of a key is made of the key, so several servers agree about it without a file that names keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Awaitable, Callable

from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.kernel.clock import Clock
from mainspring.kernel.logs import get_logger

KEY_BYTES = 32
KEYS_EVERY = 10.0  # seconds after which keys are read again, if something is encrypted or decrypted
UNKNOWN_EVERY = 1.0  # if a key is missing
_MOST_KEYS = 16

ReadKeys = Callable[[], Awaitable[str | None]]
"""Returns the text with the keys, or None if the server has none. Raises OSError."""

log = get_logger("secrets")


async def no_keys() -> str | None:
    return None


def new_key() -> str:
    """A new master key, as text."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def keys_in(text: str) -> list[bytes]:
    """The keys of a text: one in each line, or separated by commas; the newest first. Lines with # are comments. Raises
    InvalidInput, without the text."""
    found: list[bytes] = []
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for word in "\n".join(lines).replace(",", "\n").split():
        try:
            key = base64.b64decode(word, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise InvalidInput(
                f"master key {len(found) + 1} is not {KEY_BYTES} bytes in base64", 
                field="master key", hint="make one: mainspring secret new-key",
            )  # fmt: skip
        found.append(key)
    if len(found) > _MOST_KEYS:
        raise InvalidInput(f"there are {len(found)} master keys", field="master key", expected=f"at most {_MOST_KEYS}")
    return found


def key_id(key: bytes) -> str:
    return hashlib.sha256(b"mainspring master key\0" + key).hexdigest()[:16]


class NoMasterKey(Conflict):
    """This server cannot encrypt or decrypt secrets (409)."""

    code = "no_master_key"


class MasterKeys:
    def __init__(self, read: ReadKeys, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._keys: dict[str, bytes] = {}
        self._current: str | None = None
        self._read_at = float("-inf")

    async def current(self) -> tuple[str, bytes]:
        """The id of the key that encrypts, and the key. Raises NoMasterKey."""
        await self._refresh(KEYS_EVERY)
        if self._current is None:
            await self._refresh(UNKNOWN_EVERY)
        if self._current is None:
            raise NoMasterKey(
                "this server has no master key, so it keeps no secrets",
                hint="set MAINSPRING_MASTER_KEY_FILE, MAINSPRING_MASTER_KEY or MAINSPRING_MASTER_KEY_COMMAND of the "
                "server; `mainspring secret new-key` makes a key",
            )
        return self._current, self._keys[self._current]

    async def get(self, wanted: str) -> bytes:
        """Raises NoMasterKey."""
        if wanted not in self._keys:
            await self._refresh(UNKNOWN_EVERY)
        try:
            return self._keys[wanted]
        except KeyError:
            raise NoMasterKey(
                f"this server does not have the master key {wanted}, which encrypts the secrets of the tenant",
                hint="give it the same keys as the other servers",
            ) from None

    async def available(self) -> bool:
        """Whether the server has a key."""
        await self._refresh(KEYS_EVERY)
        return self._current is not None

    async def reload(self) -> None:
        """Read the keys again, now."""
        await self._refresh(0.0)

    async def _refresh(self, after: float) -> None:
        """What was read before stays if it cannot be read now."""
        now = self._clock.monotonic()
        if now - self._read_at < after:
            return
        self._read_at = now
        try:
            text = await self._read()
            found = [] if text is None else keys_in(text)
        except (OSError, InvalidInput) as error:
            log.error("the master keys cannot be read", error=str(error))
            return
        self._keys = {key_id(key): key for key in found}
        self._current = next(iter(self._keys), None)
