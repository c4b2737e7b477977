"""Headers and environment variables whose names look as if their values were secrets.

Viewers see MASK in place of these values (api/masking.py), and a request that contains MASK is refused: it is a masked
value that was read, and would replace the secret.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mainspring.domain.errors import InvalidInput
from mainspring.wire.secrets import Variables, is_reference

MASK = "***"
# Words of a name; words are separated by characters such as _ and -, and by capitals. Digits behind a word are ignored.
_WORDS = frozenset(
    {
        "auth", "bearer", "dsn", "jwt", "key", "keys", "otp", "pass", "pat", "pin", "pw", "pwd", "sid", "signature",
    }
)  # fmt: skip
_PARTS = (
    "accesskey", "apikey", "authorization", "cookie", "credential", "passphrase", "passwd", "password", "privatekey",
    "secret",
)  # fmt: skip
_ENDS = ("token", "tokens")
_NO_SECRETS = frozenset({"idempotencykey"})
_ENDS_OF_WORDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PASSWORD_IN_URL = re.compile(r"://[^/?#\s@]*:[^/?#\s@]+@")


@lru_cache(4096)
def looks_secret(name: str) -> bool:
    """Whether the value of a header or variable with this name is a secret, as far as the name tells."""
    words = [word.rstrip("0123456789") for word in _ENDS_OF_WORDS.split(name[:1000])]
    words = [word.lower() for word in words if word]
    joined = "".join(words)
    if joined in _NO_SECRETS:
        return False
    return any(word in _WORDS or word.endswith(_ENDS) for word in words) or any(part in joined for part in _PARTS)


def masked_pairs(pairs: Variables) -> Variables:
    """`pairs` with MASK in place of secrets. Addresses with a password are secrets whatever their name is. What only
    names a secret is shown. Returns `pairs` itself if there is none."""
    secret = [
        name
        for name, value in pairs.items()
        if not is_reference(value) and (looks_secret(name) or _has_password(value))
    ]
    return {**pairs, **dict.fromkeys(secret, MASK)} if secret else pairs


def check_no_mask(name: str, value: str, field: str) -> None:
    """Raise InvalidInput if the value is the mask of a secret."""
    if value == MASK:
        raise InvalidInput(
            f"{MASK} is not the value of {name}: viewers see it in place of a secret",
            code="masked_value",
            field=field,
            hint="give the value itself, or leave the field out of a change; a token of an admin reads the value",
        )


def _has_password(value: object) -> bool:
    return isinstance(value, str) and "://" in value and _PASSWORD_IN_URL.search(value) is not None
