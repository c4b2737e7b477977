"""AES-256-GCM with random nonces. What is encrypted is bound to its place: a row that is copied elsewhere does not
decrypt there. cryptography is imported when the first secret is used; most servers start without any."""

from __future__ import annotations

import secrets

from mainspring.kernel.ids import TenantId

_NONCE = 12
_VERSION = b"\x01"


class Undecryptable(Exception):
    """The data, its place or the key is wrong."""


def seal(key: bytes, value: bytes, place: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE)
    return _VERSION + nonce + AESGCM(key).encrypt(nonce, value, place)


def unseal(key: bytes, sealed: bytes, place: bytes) -> bytes:
    """Raises Undecryptable."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if sealed[:1] != _VERSION or len(sealed) <= 1 + _NONCE:
        raise Undecryptable
    try:
        return AESGCM(key).decrypt(sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :], place)
    except InvalidTag:
        raise Undecryptable from None


def place_of_key(tenant: TenantId) -> bytes:
    return f"mainspring/data-key/{tenant}".encode()


def place_of_secret(tenant: TenantId, name: str, version: int) -> bytes:
    return f"mainspring/secret/{tenant}/{name}/{version}".encode()
