"""Signatures of ID tokens. Only signatures with a private key are accepted, never `none` or a shared secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mainspring.domain.oidc import refused

LONGEST_TOKEN = 64 * 1024
_LEAST_RSA_BITS = 2048
_MOST_TRIED = 8  # keys, for a token that does not name one
_KEY_TYPES = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}

Key = Mapping[str, Any]  # as in a JWK set


class UnknownKey(Exception):
    """The token names a key that is not in the set. A newer set may have it."""


def verified_claims(token: str, keys: Iterable[Key]) -> dict[str, Any]:
    """What a token says that one of these keys has signed. Nothing of it is checked but the signature. Raises
    Unauthorized, or UnknownKey."""
    import jwt  # with its parts it takes 30 ms, and few processes sign people in

    if len(token) > LONGEST_TOKEN:
        raise refused("the ID token is too long")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise refused("the ID token is not a signed token (JWS)") from None
    algorithm, named = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in _KEY_TYPES:
        raise refused(f"the ID token is signed with {str(algorithm)[:20]!r}, which is not accepted (alg)")
    if "crit" in header:
        raise refused("the ID token demands what is not known here (crit)")
    fitting = [key for key in keys if _fits(key, algorithm) and (named is None or key.get("kid") == named)]
    if not fitting:
        raise UnknownKey
    for key in fitting[:_MOST_TRIED]:
        try:
            made = jwt.PyJWK(dict(key), algorithm=algorithm)
            if getattr(made.key, "key_size", _LEAST_RSA_BITS) < _LEAST_RSA_BITS and key["kty"] == "RSA":
                continue
            claims = jwt.decode(token, made, algorithms=[algorithm], options=_SIGNATURE_ALONE)
        except (jwt.PyJWTError, ValueError):
            continue
        return dict(claims)
    raise refused("the signature of the ID token is wrong")


# The claims are checked with the time of the database (domain/oidc.py).
_SIGNATURE_ALONE: Any = {
    "verify_signature": True,
    **{f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
}


def _fits(key: Key, algorithm: str) -> bool:
    kind, curves = _KEY_TYPES[algorithm]
    if key.get("kty") != kind or key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        return False
    return curves is None or key.get("crv") in curves
