"""Which PostgreSQL to use: its URL, whether a PgBouncer is in between, and a URL that avoids it."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, unquote

OLDEST_MAJOR = 15
_SCHEMES = ("postgresql", "postgres")
_SHAPE = "postgresql://ROLE@HOST:5432/DATABASE"
_ADVICE = f"write it as {_SHAPE}, with the password in PGPASSFILE, or after the role: ROLE:PASSWORD@HOST"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
_DEFAULT_PORT = "5432"
DEFAULT_WAIT = 300.0


class Pooling(StrEnum):
    """What a PgBouncer between us and PostgreSQL does: its pool_mode."""

    NONE = "none"
    SESSION = "session"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a URL leads, without its password."""

    host: str
    database: str
    role: str

    def __str__(self) -> str:
        return f"database {self.database!r} on {self.host} as role {self.role!r}"


@dataclass(frozen=True, slots=True)
class Database:
    """`direct_url` leads to the same database without the PgBouncer of `url`. `wait` is for how many seconds a start
    waits for it while it is down or recovers."""

    url: str
    direct_url: str | None = None
    pooling: Pooling = Pooling.NONE
    wait: float = DEFAULT_WAIT

    def __repr__(self) -> str:  # a traceback or a log line must not show passwords
        return f"Database({self.address}, pooling={self.pooling})"

    @property
    def address(self) -> Address:
        return address_of(self.url)

    @property
    def direct(self) -> Database:
        """For migrations, leases and LISTEN, which want a session of their own."""
        return self if self.direct_url is None else Database(self.direct_url)

    @property
    def has_sessions(self) -> bool:
        """Whether one connection stays with one session of PostgreSQL."""
        return self.pooling is not Pooling.TRANSACTION


def database_at(where: str | Database) -> Database:
    return where if isinstance(where, Database) else Database(where)


def checked_url(url: str, field: str = "database_url") -> str:
    """Raises InvalidInput if this is no URL of a PostgreSQL. No message repeats the URL: it may contain a password."""
    from mainspring.domain.errors import InvalidInput  # `mainspring --help` does not need it

    found = _SCHEME.match(url)
    if found is None:
        raise InvalidInput("this is not a URL", code="invalid_database_url", field=field, hint=_ADVICE)
    scheme = found[1].lower()
    if scheme not in _SCHEMES:
        hint = f"remove {scheme[scheme.index('+') :]!r}" if scheme.partition("+")[0] in _SCHEMES else _ADVICE
        raise InvalidInput(
            f"the scheme {scheme}:// is not one of PostgreSQL",
            code="invalid_database_url",
            field=field,
            expected="postgresql://",
            hint=hint,
        )
    before_options = url[found.end() :].partition("?")[0]
    authority = before_options.partition("/")[0]
    # Of a password with such a character, the driver would take a part for the host or for an option.
    if authority.count("@") != url.count("@") or authority.count("@") > 1 or "#" in url:
        raise InvalidInput(
            "the password or another part has a character that means something else in a URL",
            code="invalid_database_url",
            field=field,
            hint="write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23 and % as %25",
        )
    for host in authority.rpartition("@")[2].split(","):
        port = re.sub(r"^\[[^\]]*\]", "", host).partition(":")[2]
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise InvalidInput(
                "the port is not a number from 1 to 65535", code="invalid_database_url", field=field, hint=_ADVICE
            )
    return url


def address_of(url: str) -> Address:
    """As asyncpg reads the URL: what it lacks comes from the variables PGHOST, PGPORT, PGDATABASE and PGUSER."""
    rest, _, query = url.partition("://")[2].partition("?")
    authority, _, path = rest.partition("/")
    login, _, netloc = authority.rpartition("@")
    options = dict(parse_qsl(query))
    role = options.get("user") or unquote(login.partition(":")[0]) or os.environ.get("PGUSER") or _system_user()
    name = options.get("dbname") or options.get("database") or unquote(path) or os.environ.get("PGDATABASE") or role
    hosts = options.get("host") or unquote(netloc) or os.environ.get("PGHOST") or "localhost"
    port = options.get("port") or os.environ.get("PGPORT") or _DEFAULT_PORT
    return Address(", ".join(_with_port(host, port) for host in hosts.split(",")), name, role)


def _with_port(host: str, port: str) -> str:
    if host.startswith("/"):
        return f"the socket {host}/.s.PGSQL.{port}"
    return host if re.search(r":\d+\Z", host) and not host.endswith("]") else f"{host}:{port}"


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "?"
