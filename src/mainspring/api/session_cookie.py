"""The cookie of a session, and what a request with it must prove.

A browser sends the cookie along with requests that another page makes. `SameSite=Strict` keeps it from other sites, but
a page of another port on the same host is the same site. So a change must also come from our own origin, and carry a
token that only a page of this origin can read (`GET /v1/session`). That token is made from the secret of the session.

Behind a proxy that ends TLS our own connection has none, and a header of the proxy could be sent by anybody. What the
browser itself says decides: the Origin of a page of https gets a cookie with `Secure`, and browsers send that through
TLS only.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from mainspring.domain.errors import Forbidden, Unauthorized
from mainspring.store.sessions import LONGEST
from mainspring.wire.sessions import CSRF_HEADER

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_CSRF = CSRF_HEADER.lower().encode()
_SECURE_NAME = "__Host-mainspring"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def secret_of(scope: Any, headers: Mapping[bytes, bytes]) -> str | None:
    """The secret in the cookie of this request. None if it has no cookie of ours."""
    name = _name(scope, headers)
    found = _values(headers, name)
    if len(found) > 1:  # one of them was set by a page of another port
        raise Unauthorized(
            f"the cookie {name} occurs more than once", code="invalid_session", field="Cookie",
            hint="remove the cookies of this host, then sign in again",
        )  # fmt: skip
    return found[0] if found and found[0] else None


def set_cookie(scope: Any, headers: Mapping[bytes, bytes], secret: str) -> str:
    """The header that gives the secret to a browser."""
    return _cookie(scope, headers, secret, int(LONGEST))


def known_cookie(scope: Any, headers: Mapping[bytes, bytes], secret: str, seconds: int) -> str:
    """The header that gives a browser the secret by which it is known."""
    return _cookie(scope, headers, secret, seconds, "-known")


def known_secret_of(scope: Any, headers: Mapping[bytes, bytes]) -> str | None:
    """The secret by which this browser is known. None if it is not known."""
    found = _values(headers, f"{_name(scope, headers)}-known")
    return found[0] if len(found) == 1 and found[0] else None


def provider_cookie(scope: Any, headers: Mapping[bytes, bytes], secret: str, seconds: int) -> str:
    """The header that gives a browser what it keeps while it is away to sign in at a provider."""
    return _cookie(scope, headers, secret, seconds, "-provider")


def provider_secret_of(scope: Any, headers: Mapping[bytes, bytes]) -> str | None:
    """What the browser has kept. None if it has nothing, or something else has been put beside it."""
    found = _values(headers, f"{_name(scope, headers)}-provider")
    return found[0] if len(found) == 1 and found[0] else None


def clear_cookie(scope: Any, headers: Mapping[bytes, bytes]) -> str:
    return _cookie(scope, headers, "", 0)


def csrf_token(secret: str) -> str:
    return hashlib.sha256(b"mainspring csrf " + secret.encode()).hexdigest()


def check_request(scope: Any, headers: Mapping[bytes, bytes], secret: str) -> None:
    """Raise Forbidden unless a request with this secret comes from a page of ours, or from the address bar."""
    check_origin(scope, headers)
    if scope["method"] in _READS:
        return
    if b"origin" not in headers:
        raise _wrong_origin("a change with a session needs the header Origin", "Origin")
    if b"sec-fetch-site" not in headers and _sends_site(scope, headers):
        raise _wrong_origin("a change with a session needs the header Sec-Fetch-Site", "Sec-Fetch-Site")
    given = headers.get(_CSRF, b"").decode("latin-1")
    if not hmac.compare_digest(given.encode(), csrf_token(secret).encode()):
        raise Forbidden(
            f"the header {CSRF_HEADER} is missing or wrong", code="wrong_csrf", field=CSRF_HEADER,
            hint="send the field csrf of GET /v1/session",
        )  # fmt: skip


def check_origin(scope: Any, headers: Mapping[bytes, bytes]) -> None:
    """Raise Forbidden if a browser says that the request comes from another origin, also from another port."""
    site = headers.get(b"sec-fetch-site", b"same-origin")
    reads = scope["method"] in _READS
    if site != b"same-origin" and not (reads and site == b"none"):  # none: from the address bar
        raise _wrong_origin("requests of other sites are refused", "Sec-Fetch-Site")
    origin = headers.get(b"origin")
    if origin is not None and not _is_own(origin.decode("latin-1"), scope, headers):
        raise _wrong_origin("requests from other origins are refused", "Origin")


def _is_own(origin: str, scope: Any, headers: Mapping[bytes, bytes]) -> bool:
    """Behind a proxy that ends TLS the scheme of the page is https and ours is http."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    schemes = ("https",) if scope["scheme"] == "https" else ("https", "http")
    return parts.scheme in schemes and parts.netloc.lower() == _host(headers)


def _sends_site(scope: Any, headers: Mapping[bytes, bytes]) -> bool:
    """Whether browsers send Sec-Fetch-Site to this address: with TLS, and on loopback."""
    return _is_secure(scope, headers) or _is_loopback(headers)


def _is_secure(scope: Any, headers: Mapping[bytes, bytes]) -> bool:
    """Whether the browser uses TLS, to this server or to a proxy before it. A read says so only by its cookie."""
    if scope["scheme"] == "https":
        return True
    if (origin := headers.get(b"origin")) is not None:
        return origin.lower().startswith(b"https://")
    if not _values(headers, _SECURE_NAME):
        return False
    # Of another port of loopback, a browser sends the cookie also without TLS.
    return not (_is_loopback(headers) and _values(headers, _plain_name(headers)))


def _values(headers: Mapping[bytes, bytes], name: str) -> list[str]:
    """The values of all cookies with this name."""
    pairs = (pair.strip().partition("=") for pair in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    return [value for key, _, value in pairs if key == name]


def _name(scope: Any, headers: Mapping[bytes, bytes]) -> str:
    return _SECURE_NAME if _is_secure(scope, headers) else _plain_name(headers)


def _plain_name(headers: Mapping[bytes, bytes]) -> str:
    """Cookies ignore ports, so the name has the port. With TLS a browser keeps `__Host-` to this host alone."""
    return f"mainspring-{_name_and_port(headers)[1]}"


def _is_loopback(headers: Mapping[bytes, bytes]) -> bool:
    return _name_and_port(headers)[0] in _LOOPBACK


def _cookie(scope: Any, headers: Mapping[bytes, bytes], value: str, seconds: int, kind: str = "") -> str:
    secure = "; Secure" if _is_secure(scope, headers) else ""
    return f"{_name(scope, headers)}{kind}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _name_and_port(headers: Mapping[bytes, bytes]) -> tuple[str | None, int]:
    try:
        parts = urlsplit(f"//{_host(headers)}")
        return parts.hostname, parts.port or 80
    except ValueError:  # not a port
        return None, 80


def _host(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"host", b"").decode("latin-1").lower()


def _wrong_origin(detail: str, field: str) -> Forbidden:
    return Forbidden(detail, code="wrong_origin", field=field, hint="use the page of this server")
