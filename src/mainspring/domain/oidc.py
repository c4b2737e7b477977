"""Sign-in at a provider of OpenID Connect: what is configured, what an ID token must say, and which roles follow."""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.errors import Forbidden, InvalidInput, MainspringError, Unauthorized
from mainspring.domain.people import ROLES, mail_address
from mainspring.domain.texts import check_line
from mainspring.kernel.trust import is_loopback

SKEW = 60.0  # seconds by which the clock of a provider may differ from that of the database
OLDEST_TOKEN = 600.0  # seconds; an ID token is checked as soon as it was issued
EVERYBODY = "*"  # in place of a group
_LONGEST_SUBJECT = 255
_LONGEST_MAIL = 200
_LONGEST_NAME = 100
_MOST_GROUPS = 10_000


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is in this group has this role in this tenant."""

    group: str
    tenant: str
    role: str


class ProviderSettings(msgspec.Struct, frozen=True):
    """A provider. key: in addresses. name: on the button. mail_domains: it speaks for addresses of these domains alone.
    mail_trusted: it gives no mail address that it has not checked, though its tokens do not say so. link_by_mail: who
    has an account here gets it by a mail address that the provider has checked. session: seconds. allow: addresses
    that are not public and that may be called."""

    key: str
    name: str
    issuer: str
    client_id: str
    client_secret: str | None
    scopes: tuple[str, ...]
    groups_claim: str
    mail_claim: str
    mail_verified_claim: str
    mail_trusted: bool
    mail_domains: tuple[str, ...]
    link_by_mail: bool
    session: float
    allow: str | None
    grants: tuple[Grant, ...]

    def __repr__(self) -> str:
        return f"ProviderSettings({self.key!r}, {self.issuer!r})"


def is_safe(url: str) -> bool:
    """Whether what is sent to this address stays between the two ends."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    if not parts.hostname or parts.username is not None or not url.isprintable() or " " in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))


class Identity(msgspec.Struct, frozen=True):
    """A person, as a provider knows it. mail: only if the provider vouches for it. fresh: the person has proved just
    now who it is."""

    subject: str
    mail: str | None
    name: str
    groups: frozenset[str]


def refused(detail: str, hint: str | None = None) -> Unauthorized:
    """What the provider has answered does not sign in."""
    return Unauthorized(
        detail, code="sign_in_refused", field="code",
        hint=hint or "sign in again; if it stays so, compare the settings of Mainspring with those of the provider",
    )  # fmt: skip


def check_id_token(
    claims: Mapping[str, Any], settings: ProviderSettings, nonce: str, now: float, *, signed_in_after: float | None
) -> str:
    """Check what a verified ID token says, and return its subject. Raises Unauthorized. `now`: seconds since the epoch.
    `signed_in_after`: the person must have proved since then who it is."""
    if claims.get("iss") != settings.issuer:
        raise refused("the ID token is of another issuer (iss)")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or settings.client_id not in audiences:
        raise refused("the ID token is for another client (aud)")
    party = claims.get("azp")
    if (party is not None or len(audiences) > 1) and party != settings.client_id:
        raise refused("the ID token was given to another client (azp)")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(errors="replace"), nonce.encode()):
        raise refused("the ID token belongs to another sign-in (nonce)")
    if now >= _seconds(claims, "exp") + SKEW:
        raise refused("the ID token has expired (exp)", _CLOCKS)
    issued = _seconds(claims, "iat")
    if issued > now + SKEW:
        raise refused("the ID token was issued in the future (iat)", _CLOCKS)
    if issued < now - OLDEST_TOKEN - SKEW:
        raise refused("the ID token is too old (iat)", _CLOCKS)
    if "nbf" in claims and _seconds(claims, "nbf") > now + SKEW:
        raise refused("the ID token is not valid yet (nbf)", _CLOCKS)
    if signed_in_after is not None and _seconds(claims, "auth_time") < signed_in_after - SKEW:
        raise refused("the provider has not asked again who you are (auth_time)")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject or len(subject) > _LONGEST_SUBJECT or not subject.isprintable():
        raise refused("the ID token names nobody (sub)")
    return subject


_CLOCKS = "compare the clock of the provider with that of the database"


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise refused(f"the ID token has no {name}")
    return float(value)


def identity_of(claims: Mapping[str, Any], subject: str, settings: ProviderSettings) -> Identity:
    """The person that the claims describe. Raises Unauthorized if they cannot be relied on."""
    mail = _vouched_mail(claims, settings)
    return Identity(subject, mail, _name_of(claims, mail or subject), _groups_of(claims, settings.groups_claim))


def lacks(claims: Mapping[str, Any], settings: ProviderSettings) -> bool:
    """Whether an ID token leaves out what the provider may say elsewhere."""
    return settings.mail_claim not in claims or (
        bool(settings.grants) and _found(claims, settings.groups_claim) is None
    )


def roles_by_tenant(settings: ProviderSettings, groups: frozenset[str]) -> dict[str, str]:
    """The role in each tenant; of several the one that reaches furthest."""
    found: dict[str, str] = {}
    for grant in settings.grants:
        if grant.group == EVERYBODY or grant.group in groups:
            before = found.get(grant.tenant, ROLES[-1])
            found[grant.tenant] = min(before, grant.role, key=ROLES.index)
    return found


def no_verified_mail(settings: ProviderSettings) -> Forbidden:
    domains = f" of {' or '.join(settings.mail_domains)}" if settings.mail_domains else ""
    return Forbidden(
        f"{settings.name} gives no mail address{domains} that it has checked", code="mail_not_verified", field="code",
        hint="confirm your mail address there, or ask whoever runs this Mainspring to look at its settings of sign-in",
    )  # fmt: skip


def _vouched_mail(claims: Mapping[str, Any], settings: ProviderSettings) -> str | None:
    given = claims.get(settings.mail_claim)
    says = claims.get(settings.mail_verified_claim)
    if not isinstance(given, str) or len(given) > _LONGEST_MAIL:
        return None
    if not settings.mail_trusted and says not in (True, "true", "True", "1"):
        return None
    try:
        mail = mail_address(given)
    except InvalidInput:
        return None
    if settings.mail_domains and mail.rpartition("@")[2] not in settings.mail_domains:
        return None
    return mail


def _name_of(claims: Mapping[str, Any], otherwise: str) -> str:
    for name in ("name", "preferred_username"):
        given = claims.get(name)
        if isinstance(given, str) and (text := given.strip()[:_LONGEST_NAME].strip()):
            try:
                check_line(text, name)
            except MainspringError:
                continue
            return text
    return otherwise.partition("@")[0][:_LONGEST_NAME]


def _groups_of(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, dict) and claim in elsewhere:
        raise refused(
            "the provider leaves out the groups, because there are too many of them",
            "let it send only the groups of this application, or its roles (groups_claim)",
        )
    found = _found(claims, claim)
    listed: Sequence[Any] = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    if len(listed) > _MOST_GROUPS:
        raise refused("the provider names too many groups")
    return frozenset(one for one in listed if isinstance(one, str))


def _found(claims: Mapping[str, Any], path: str) -> Any:
    """The claim of this name, or the one at this path, such as realm_access.roles."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
