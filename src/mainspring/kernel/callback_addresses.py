"""The one-time addresses that steps give to the services that they call. An address names a run and the fence of one
attempt, signed with a key of the installation: nothing is stored for it, and it cannot be guessed."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from hashlib import sha256
from uuid import UUID

from mainspring.kernel.public_url import is_known, link_to

PATH = "/v1/callbacks/"
_RUN, _FENCE, _SIGNATURE = 16, 4, 32
_key = b""


def set_callback_key(key: bytes) -> None:
    """Use this key in this process."""
    global _key
    _key = key


def callback_address(run_id: UUID, fence: int) -> str:
    """The address for one attempt. Empty if the servers have no public URL."""
    if not _key or not is_known():
        return ""
    what = run_id.bytes + fence.to_bytes(_FENCE, "big")
    return link_to(PATH + urlsafe_b64encode(what + _signature(what)).decode().rstrip("="))


def attempt_of(token: str) -> tuple[UUID, int] | None:
    """The run and the fence that the last part of an address names. None if this installation has not signed it."""
    try:
        data = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (Error, ValueError):
        return None
    what, signature = data[: _RUN + _FENCE], data[_RUN + _FENCE :]
    if not _key or len(data) != _RUN + _FENCE + _SIGNATURE or not hmac.compare_digest(signature, _signature(what)):
        return None
    return UUID(bytes=what[:_RUN]), int.from_bytes(what[_RUN:], "big")


def _signature(what: bytes) -> bytes:
    return hmac.new(_key, what, sha256).digest()
