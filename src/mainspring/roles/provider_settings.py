"""The file that says at which providers of OpenID Connect people sign in, and what their groups may do here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.oidc import Grant, ProviderSettings, is_safe
from mainspring.domain.people import person_role
from mainspring.domain.texts import check_line
from mainspring.roles.provider_guard import provider_guard
from mainspring.store.sessions import LONGEST
from mainspring.wire.formats import DurationIn

_KEY = re.compile(r"[a-z0-9-]{1,40}\Z")
_SHORTEST_SESSION = 300.0
_MOST_BYTES = 1024 * 1024
_HINT = "docs/oidc.md has the fields and complete files"


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    issuer: str
    client_id: str
    name: str | None = None
    client_secret: str | None = None
    client_secret_file: str | None = None
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups_claim: str = "groups"
    mail_claim: str = "email"
    mail_verified_claim: str = "email_verified"
    mail_trusted: bool = False
    mail_domains: list[str] = []
    link_by_mail: bool = False
    session: DurationIn = LONGEST
    allow: str | None = None
    roles: list[Grant] = []


class _File(msgspec.Struct, forbid_unknown_fields=True):
    providers: dict[str, _Table]


def read_providers(path: Path | None) -> tuple[ProviderSettings, ...]:
    """The providers in this file. Raises InvalidInput that names the field."""
    if path is None:
        return ()
    try:
        content = path.read_bytes()
        if len(content) > _MOST_BYTES:
            raise _wrong(path, f"the file has more than {_MOST_BYTES} bytes")
        read = msgspec.convert(tomllib.loads(content.decode()), _File)
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(path, f"cannot be read as TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise _wrong(path, str(error)) from None
    found = tuple(_settings(path, key, table) for key, table in read.providers.items())
    issuers = [one.issuer for one in found]
    if len(set(issuers)) < len(issuers):
        raise _wrong(path, "two providers have the same issuer")
    return found


def files_of_providers(path: Path | None) -> list[Path]:
    """The file, and those with the secrets of its clients."""
    if path is None:
        return []
    read = msgspec.convert(tomllib.loads(path.read_text()), _File)
    named = [one.client_secret_file for one in read.providers.values() if one.client_secret_file is not None]
    return [path.absolute(), *(path.parent.absolute() / name for name in named)]


def _settings(path: Path, key: str, table: _Table) -> ProviderSettings:
    where = f"providers.{key}"
    if not _KEY.match(key):
        raise _wrong(path, f"{where}: a key has small letters, digits and -, such as company")
    if not is_safe(table.issuer) or "?" in table.issuer or "#" in table.issuer:
        raise _wrong(path, f"{where}.issuer: {table.issuer!r} is not an address with https://")
    if not table.client_id:
        raise _wrong(path, f"{where}.client_id is empty")
    if "openid" not in table.scopes or any(not one or " " in one for one in table.scopes):
        raise _wrong(path, f"{where}.scopes: a list of words with openid")
    domains = tuple(one.lower().removeprefix("@") for one in table.mail_domains)
    if (table.link_by_mail or table.mail_trusted) and not domains:
        which = "link_by_mail" if table.link_by_mail else "mail_trusted"
        raise _wrong(path, f"{where}.{which} needs mail_domains: the domains for which this provider speaks")
    try:
        session = parse_duration(table.session, "session", least=_SHORTEST_SESSION, most=LONGEST)
        provider_guard(table.allow)
        name = table.name or key
        check_line(name, "name")
        for grant in table.roles:
            person_role(grant.role)
            check_line(grant.tenant, "tenant")
    except InvalidInput as error:
        raise _wrong(path, f"{where}: {error.in_sentences()}") from None
    return ProviderSettings(
        key, name, table.issuer, table.client_id, _secret(path, where, table), table.scopes, table.groups_claim,
        table.mail_claim, table.mail_verified_claim, table.mail_trusted, domains, table.link_by_mail, session,
        table.allow, tuple(table.roles),
    )  # fmt: skip


def _secret(path: Path, where: str, table: _Table) -> str | None:
    if table.client_secret is not None and table.client_secret_file is not None:
        raise _wrong(path, f"{where}: client_secret and client_secret_file exclude each other")
    if table.client_secret_file is None:
        return table.client_secret or None
    try:
        secret = (path.parent / table.client_secret_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, f"{where}.client_secret_file cannot be read: {error}") from None
    if not secret:
        raise _wrong(path, f"{where}.client_secret_file is empty")
    return secret


def _wrong(path: Path, detail: str) -> InvalidInput:
    return InvalidInput(f"{path}: {detail}", code="invalid_settings", field="oidc", hint=_HINT)
