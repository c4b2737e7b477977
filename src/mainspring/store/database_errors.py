"""Errors of PostgreSQL at the start of a process, in words: where, as whom, what is wrong, and the fix.

No message contains a password. While a process runs, its loops and the API handle the same errors themselves.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from mainspring.domain.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MainspringError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from mainspring.store.database import Address, Database
from mainspring.store.pool import NoFreeConnection

PASSWORD_HINT = "check the password in the URL, in --database-url-file or in PGPASSFILE"
_NO_ENTRY = re.compile(r'no pg_hba\.conf entry for host "([^"]*)".*, (?:SSL off|no encryption)')
# Messages of PgBouncer about the PostgreSQL behind it.
_SERVER_AWAY = re.compile(r"cannot connect to server|server_login_retry|the database system is|_timeout|shutting down")
_DENIED = re.compile(r"(?:permission denied for|must be owner of) (\w+(?: \w+)?) (\S+)\Z")
# The errors that can end without a change of the command or the database. A start waits only for the end of these
# (roles/database.py): a wrong password stays wrong.
TEMPORARY = frozenset(
    (
        "database_starting",
        "database_refused",
        "database_lost",
        "database_silent",
        "database_unreachable",
        "database_in_recovery",
        "database_disk_full",
        "too_many_clients",
    )
)


@contextmanager
def database_in_words(database: Database) -> Iterator[None]:
    """Turn an error at the start of a process into words. Errors that are already in words are not changed."""
    try:
        yield
    except MainspringError:
        raise
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise in_words(error, database) from error


def in_words(error: Exception, database: Database) -> MainspringError:
    for kinds, explain in _EXPLAINED:
        if isinstance(error, kinds) and (found := explain(error, database)) is not None:
            return found
    said = without_password(f"{type(error).__name__}: {error}", database)
    return Unavailable(f"{database.address} cannot be used: {said}", code="database_error")


def without_password(text: str, database: Database) -> str:
    for url in (database.url, database.direct_url or ""):
        try:
            parts = urlsplit(url)
            secrets = [parts.password, *parse_qs(parts.query).get("password", [])]
        except ValueError:
            continue
        for secret in filter(None, secrets):
            for written in {secret, unquote(secret)}:
                text = re.sub(rf"(?<!\w){re.escape(written)}(?!\w)", "***", text)
    return text


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def _no_free_connection(_error: Exception, _database: Database) -> MainspringError:
    return Unavailable(NoFreeConnection.DETAIL, code="too_many_clients", hint=NoFreeConnection.FIX)


def _starting(error: Exception, database: Database) -> MainspringError:
    """PostgreSQL answers, and says itself that it starts, recovers or shuts down."""
    return Unavailable(f"{database.address} is not ready: {error}", code="database_starting")


def _lost(error: Exception, database: Database) -> MainspringError | None:
    """PgBouncer too closes connections while it cannot reach PostgreSQL. The error ends with its reason."""
    if isinstance(error, asyncpg.InterfaceError) and "closed" not in str(error):
        return None
    return Unavailable(f"{database.address} has closed the connection: {error}", code="database_lost")


def _disk_full(error: Exception, database: Database) -> MainspringError:
    return Unavailable(
        f"{database.address} has no room left: {error}", code="database_disk_full", hint="make room on its disk"
    )


def _unreachable(error: Exception, database: Database) -> MainspringError:
    return Unavailable(
        f"{database.address} cannot be reached: {error}",
        code="database_unreachable",
        hint="check host, port, network and firewall",
    )


def _refused(_error: Exception, database: Database) -> MainspringError:
    where = database.address
    return Unavailable(
        f"nothing listens on {where.host} (database {where.database!r}, role {where.role!r})",
        code="database_refused",
        hint="check host and port, whether PostgreSQL runs, and its listen_addresses",
    )


def _unknown_host(error: Exception, database: Database) -> MainspringError:
    where = database.address
    if error.args and error.args[0] == socket.EAI_AGAIN:
        return Unavailable(
            f"no name server answers for the host of {where.host} (database {where.database!r}, role {where.role!r})",
            code="database_unreachable",
            hint="check the network and the name servers of this machine",
        )
    return Unavailable(
        f"the host of {where.host} is not known (database {where.database!r}, role {where.role!r})",
        code="database_host_unknown",
        hint="check the name of the host in the URL",
    )


def _no_file(_error: Exception, database: Database) -> MainspringError:
    options = parse_qs(urlsplit(database.url).query)
    for name in ("sslrootcert", "sslcert", "sslkey", "sslcrl"):
        for file in options.get(name, []):
            if not Path(file).exists():
                return InvalidInput(f"the file {file} of {name} is missing", field="database_url")
    where = database.address
    return Unavailable(
        f"{where.host} is missing (database {where.database!r}, role {where.role!r})", code="database_refused",
        hint="check the folder in host= and the port, and whether PostgreSQL runs",
    )  # fmt: skip


def _no_access(_error: Exception, database: Database) -> MainspringError:
    return Forbidden(
        f"this user of the system may not use {database.address}", code="database_no_access",
        hint="run the command as another user, or connect over TCP",
    )  # fmt: skip


def _silent(_error: Exception, database: Database) -> MainspringError:
    return Unavailable(
        f"{database.address} does not answer in time",
        code="database_silent",
        hint="check host, port and firewall; with PgBouncer, whether its pool has free connections",
    )


def _no_database(_error: Exception, database: Database) -> MainspringError:
    where = database.address
    return NotFound(
        f"there is no database {where.database!r} on {where.host} (role {where.role!r})",
        code="no_such_database",
        hint=f"create it: create database {quoted(where.database)} owner {quoted(where.role)}",
    )


def _bad_login(error: Exception, database: Database) -> MainspringError | None:
    where, said = database.address, str(error)
    if re.search(r"role \S+ does not exist", said):
        return Unauthorized(
            f"there is no role {where.role!r} on {where.host} (database {where.database!r})",
            code="no_such_role",
            hint=f"create it: create role {quoted(where.role)} login",
        )
    if "not permitted to log in" in said:
        return Unauthorized(
            f"the role {where.role!r} on {where.host} may not log in",
            code="login_refused",
            hint=f"alter role {quoted(where.role)} login",
        )
    if _NO_ENTRY.search(said):
        return Unauthorized(
            f"{where} is not allowed without TLS by its pg_hba.conf",
            code="tls_required",
            hint="add ?sslmode=require to the URL (or verify-full with sslrootcert=FILE), or a line to pg_hba.conf",
        )
    if "pg_hba.conf" in said:
        return Unauthorized(
            f"{where} is not allowed by its pg_hba.conf: {said}",
            code="login_refused",
            hint="add a line for this role, database and address to pg_hba.conf",
        )
    if isinstance(error, asyncpg.InvalidPasswordError):
        return Unauthorized(
            f"PostgreSQL does not accept the password for {where}, or the role does not exist",
            code="wrong_password",
            hint=PASSWORD_HINT,
        )
    return Unauthorized(f"{where}: {said}", code="login_refused", hint=PASSWORD_HINT)


def _tls(error: Exception, database: Database) -> MainspringError | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unavailable(
            f"the certificate of {database.address.host} is not trusted: {getattr(error, 'verify_message', error)}",
            code="database_tls",
            hint="name the authority with sslrootcert=FILE in the URL, and the host as the certificate does",
        )
    if isinstance(error, ssl.SSLError):
        return Unavailable(f"TLS to {database.address.host} failed: {error.reason}", code="database_tls")
    if "rejected SSL upgrade" in str(error):
        return Unavailable(
            f"{database.address} has no TLS, but the URL or PGSSLMODE asks for it",
            code="tls_refused",
            hint="switch on ssl in PostgreSQL, or take sslmode out of the URL",
        )
    return None


def _standby(_error: Exception, database: Database) -> MainspringError:
    return in_recovery(database.address)


def in_recovery(where: Address) -> Conflict:
    return Conflict(
        f"{where} is read-only: it is a standby, or it recovers",
        code="database_in_recovery",
        hint="use the URL of the primary; with several hosts in the URL add target_session_attrs=read-write",
    )


def _read_only(_error: Exception, database: Database) -> MainspringError:
    return read_only(database.address)


def read_only(where: Address) -> Conflict:
    return Conflict(
        f"{where} is read-only: it is a standby, or default_transaction_read_only is on",
        code="database_read_only",
        hint="use the URL of the primary; with several hosts in the URL add target_session_attrs=read-write",
    )


def _bad_url(error: Exception, database: Database) -> MainspringError:
    said = without_password(str(error), database)
    return InvalidInput(f"the URL cannot be used: {said}", code="invalid_database_url", field="database_url")


def _unknown_setting(error: Exception, _database: Database) -> MainspringError | None:
    if "configuration parameter" not in str(error):
        return None
    return InvalidInput(
        f"an option in the URL is not one of PostgreSQL: {error}", code="invalid_database_url", field="database_url"
    )


def _pooler(error: Exception, database: Database) -> MainspringError | None:
    said = str(error)
    if "startup parameter" in said:
        return pooler_unnamed(database.address)
    if "statement pooling mode" in said:
        return Conflict(
            f"PgBouncer at {database.address.host} has pool_mode = statement, which has no transactions",
            code="pool_mode",
            hint="set pool_mode = transaction or session in PgBouncer",
        )
    if re.search(r"no such database|database \S+ does not exist", said):
        return _no_database(error, database)
    if "no more connections allowed" in said:
        return Unavailable(
            f"PgBouncer at {database.address.host} has no free connection: {said}",
            code="too_many_clients",
            hint="raise max_client_conn in PgBouncer",
        )
    if "authentication failed" in said or "no such user" in said:
        return Unauthorized(f"{database.address}: {said}", code="login_refused", hint=PASSWORD_HINT)
    if isinstance(error, asyncpg.ProtocolViolationError) and not _SERVER_AWAY.search(said):  # an answer of PgBouncer
        return Unavailable(f"{database.address} cannot be used: {said}", code="database_error")
    return None


def pooler_unnamed(where: Address) -> Conflict:
    return Conflict(
        f"{where.host} is a PgBouncer, not a PostgreSQL: it takes no settings with a connection",
        code="pooler_unnamed",
        hint="give --pgbouncer transaction or --pgbouncer session, as pool_mode of that database says, or set "
        "MAINSPRING_PGBOUNCER",
    )


def _denied(error: Exception, database: Database) -> MainspringError:
    """Name the object that the error names. There is no connection that could search for others (grants.py)."""
    where, said = database.address, str(error).splitlines()[0]
    found = _DENIED.search(said)
    kind, name = (found[1], found[2].strip('"')) if found else ("", "")
    owner_needed = said.startswith("must be owner")
    role = quoted(where.role)
    hints = {
        "database": f"grant connect on database {quoted(where.database)} to {role}"
        if "CONNECT" in str(error)
        else f"create schema mainspring authorization {role}; or: grant create on database "
        f"{quoted(where.database)} to {role}",
        "schema": f"grant usage, create on schema {name} to {role}",
        "table": f"grant select, insert, update, delete on mainspring.{name} to {role}",
        "sequence": f"grant usage on sequence mainspring.{name} to {role}",
        "function": f"grant execute on function mainspring.{name} to {role}",
    }
    hint = "run `mainspring migrate` with the role that owns the schema" if owner_needed else hints.get(kind)
    return Forbidden(f"{where}: {said}", code="permission_denied", hint=hint)


Explain = Callable[[Exception, Database], MainspringError | None]
_CLOSED = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ConnectionResetError,
    BrokenPipeError,
)
# The first entry that matches and returns an error is used. Subclasses come before their base.
_EXPLAINED: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Explain], ...] = (
    (asyncpg.TooManyConnectionsError, _no_free_connection),
    (asyncpg.CannotConnectNowError, _starting),
    (asyncpg.DiskFullError, _disk_full),
    (asyncpg.InvalidCatalogNameError, _no_database),
    (asyncpg.InvalidAuthorizationSpecificationError, _bad_login),
    (asyncpg.ReadOnlySQLTransactionError, _read_only),
    (asyncpg.InsufficientPrivilegeError, _denied),
    (asyncpg.TargetServerAttributeNotMatched, _standby),
    (asyncpg.ClientConfigurationError, _bad_url),
    (asyncpg.UndefinedObjectError, _unknown_setting),
    (asyncpg.PostgresError, _pooler),
    (_CLOSED, _lost),
    (socket.gaierror, _unknown_host),
    (ConnectionRefusedError, _refused),
    (FileNotFoundError, _no_file),
    (PermissionError, _no_access),
    (TimeoutError, _silent),
    (OSError, _tls),
    (OSError, _unreachable),
)
