"""A database that cannot be used: one message with host, database, role and fix, an exit code, and no password."""

from __future__ import annotations

import socket
import ssl

import asyncpg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainspring.cli.error_report import exit_code_of
from mainspring.cli.main import main
from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.store.database import Database, address_of, checked_url
from mainspring.store.database_errors import TEMPORARY, in_words
from mainspring.store.preflight import check_database

SECRET = "Tr0mbone"
# A start waits for the end of these.
PASSING = (
    "database_starting", "database_refused", "database_lost", "database_silent", "database_unreachable",
    "database_in_recovery", "database_disk_full", "too_many_clients",
)  # fmt: skip
URL = f"postgresql://ada:{SECRET}@db.example:6432/shop"


async def told(url: str) -> MainspringError:
    with pytest.raises(MainspringError) as caught:
        await check_database(Database(url))
    return caught.value


def words(error: MainspringError) -> str:
    return f"{error.located_detail()} {'; '.join(error.advice())}"


@pytest.mark.parametrize(
    ("error", "code", "exit_code", "fix"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "database_refused", 6, "listen_addresses"),
        (TimeoutError(), "database_silent", 6, "firewall"),
        (asyncpg.InvalidCatalogNameError("x"), "no_such_database", 3, "create database shop owner ada"),
        (asyncpg.InvalidPasswordError("x"), "wrong_password", 5, "PGPASSFILE"),
        (
            asyncpg.InvalidAuthorizationSpecificationError('role "ada" does not exist'),
            "no_such_role", 5, "create role ada login",
        ),
        (
            asyncpg.InvalidAuthorizationSpecificationError('role "ada" is not permitted to log in'),
            "login_refused", 5, "alter role ada login",
        ),
        (
            asyncpg.InvalidAuthorizationSpecificationError(
                'no pg_hba.conf entry for host "10.0.0.1", user "ada", database "shop", no encryption'
            ),
            "tls_required", 5, "?sslmode=require",
        ),
        (
            asyncpg.InvalidAuthorizationSpecificationError(
                'no pg_hba.conf entry for host "10.0.0.1", user "ada", database "shop", SSL on'
            ),
            "login_refused", 5, "pg_hba.conf",
        ),
        (ConnectionError('PostgreSQL server at "x" rejected SSL upgrade'), "tls_refused", 6, "sslmode"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "database_tls", 6, "sslrootcert"),
        (asyncpg.ReadOnlySQLTransactionError("x"), "database_read_only", 4, "primary"),
        (asyncpg.TooManyConnectionsError("x"), "too_many_clients", 6, "max_connections"),
        (
            asyncpg.InsufficientPrivilegeError("permission denied for table runs"),
            "permission_denied", 5, "grant select, insert, update, delete on mainspring.runs to ada",
        ),
        (
            asyncpg.InsufficientPrivilegeError("permission denied for schema mainspring"),
            "permission_denied", 5, "grant usage, create on schema mainspring to ada",
        ),
        (
            asyncpg.InsufficientPrivilegeError("permission denied for database shop"),
            "permission_denied", 5, "create schema mainspring authorization ada",
        ),
        (
            asyncpg.InsufficientPrivilegeError("must be owner of table runs"),
            "permission_denied", 5, "`mainspring migrate` with the role that owns the schema",
        ),
        (asyncpg.CannotConnectNowError("the database system is starting up"), "database_starting", 6, "starting up"),
        (asyncpg.AdminShutdownError("terminating connection"), "database_lost", 6, "terminating"),
        (ConnectionResetError(104, "Connection reset by peer"), "database_lost", 6, "reset"),
        (OSError(113, "No route to host"), "database_unreachable", 6, "firewall"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "database_unreachable", 6, "name servers"),
        (socket.gaierror(socket.EAI_NONAME, "not known"), "database_host_unknown", 6, "name of the host"),
        (asyncpg.DiskFullError("could not extend file"), "database_disk_full", 6, "make room"),
        (asyncpg.TargetServerAttributeNotMatched("x"), "database_in_recovery", 4, "primary"),
        (asyncpg.ProtocolViolationError("pgbouncer cannot connect to server"), "database_lost", 6, "cannot connect"),
        (
            asyncpg.ConnectionDoesNotExistError("it was closed: server login has been failing"),
            "database_lost", 6, "has been failing",
        ),
        (
            asyncpg.ConnectionDoesNotExistError('server login failed: FATAL password authentication failed for "ada"'),
            "login_refused", 5, "PGPASSFILE",
        ),
        (asyncpg.ProtocolViolationError("unsupported pkt type: 88"), "database_error", 6, ""),
        (asyncpg.InternalServerError(f"what? {SECRET}"), "database_error", 6, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)  # fmt: skip
def test_each_error_has_words_a_fix_and_an_exit_code(error: Exception, code: str, exit_code: int, fix: str) -> None:
    found = in_words(error, Database(URL))
    said = words(found)
    assert (found.code, exit_code_of(found)) == (code, exit_code)
    assert (code in TEMPORARY) is (code in PASSING)
    assert fix in said and SECRET not in said
    if code not in ("too_many_clients", "database_tls", "login_refused"):
        assert all(part in said for part in ("db.example:6432", "shop", "ada")), said


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://ada:{SECRET}@h/shop",
        f"postgresql+asyncpg://ada:{SECRET}@h/shop",
        f"postgres+psycopg2://ada:{SECRET}@h/shop",
        f"host=h dbname=shop password={SECRET}",
        f"h:5432/{SECRET}",
        f"postgresql://ada:x@{SECRET}@h/shop",
        f"postgresql://ada:x/{SECRET}@h/shop",
        f"postgresql://ada:x#{SECRET}@h/shop",
        f"postgresql://ada:5?{SECRET}@h/shop",
        f"postgresql://h:{SECRET}/shop",
        "",
    ],
)
def test_a_wrong_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked_url(url)
    assert SECRET not in words(caught.value) and caught.value.field == "database_url"


_PIECE = st.text("a1@:/?#[]%&=+,. '\"\\", max_size=6)


@given(_PIECE, _PIECE)
@example("5?", "")
@example("x@?host=", "")
@example("", "@?")
def test_no_part_of_a_password_is_ever_taken_for_something_that_is_shown(left: str, right: str) -> None:
    url = f"postgresql://ada:{left}{SECRET}{right}@db.example:6432/shop"
    try:
        checked_url(url)
    except InvalidInput as error:
        assert SECRET not in words(error)
    else:
        assert SECRET not in str(address_of(url)) and SECRET not in repr(Database(url))


@pytest.mark.parametrize(
    ("url", "host", "database", "role"),
    [
        ("postgresql://ada@h/shop", "h:5432", "shop", "ada"),
        ("postgres://a%40b@h:1/my%20shop", "h:1", "my shop", "a@b"),
        ("postgresql://ada@[::1]:6000/shop", "[::1]:6000", "shop", "ada"),
        ("postgresql://ada@[::1]/shop", "[::1]:5432", "shop", "ada"),
        ("postgresql://ada@one:1,two/shop", "one:1, two:5432", "shop", "ada"),
        ("postgresql://ada@/shop?host=/run/pg&port=6000", "the socket /run/pg/.s.PGSQL.6000", "shop", "ada"),
        ("postgresql://h?user=ada", "h:5432", "ada", "ada"),
    ],
)
def test_the_address_is_what_the_driver_connects_to(url: str, host: str, database: str, role: str) -> None:
    shown = address_of(checked_url(url))
    assert (shown.host, shown.database, shown.role) == (host, database, role)


@pytest.mark.anyio
async def test_a_host_that_nobody_knows() -> None:
    error = await told(f"postgresql://ada:{SECRET}@no-such-host.invalid/shop")
    assert error.code == "database_host_unknown" and "no-such-host.invalid:5432" in error.detail


@pytest.mark.anyio
async def test_a_database_and_a_role_that_are_not_there(empty_url: str) -> None:
    name = address_of(empty_url).database
    assert (await told(empty_url.replace(name, "nosuch"))).code == "no_such_database"
    assert (await told(empty_url.replace("//mainspring_owner@", "//nobody_there@"))).code == "login_refused"
    assert (await told(empty_url.partition("&passfile")[0])).code == "wrong_password"


@pytest.mark.anyio
async def test_a_read_only_database(empty_url: str) -> None:
    connection = await asyncpg.connect(empty_url)
    await connection.execute(f"alter database {address_of(empty_url).database} set default_transaction_read_only = on")
    await connection.close()
    assert (await told(empty_url)).code == "database_read_only"


@pytest.mark.anyio
async def test_a_postgresql_that_is_too_old(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.store.preflight.OLDEST_MAJOR", 99)
    error = await told(empty_url)
    assert error.code == "postgres_too_old" and error.expected == "PostgreSQL 99 or newer"


@pytest.mark.parametrize("command", ["migrate", "scheduler", "server --port 8798", "up --port 8798"])
def test_every_command_that_uses_a_database_says_it_in_one_message(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("MAINSPRING_DATABASE_URL", f"postgresql://ada:{SECRET}@127.0.0.1:1/shop")
    monkeypatch.setenv("MAINSPRING_DATA", str(tmp_path))
    monkeypatch.setenv("MAINSPRING_DATABASE_WAIT", "0")
    assert main(command.split()) == 6
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("{")]
    assert lines[0] == "error: nothing listens on 127.0.0.1:1 (database 'shop', role 'ada')"
    assert lines[1].startswith("hint: ") and SECRET not in " ".join(lines) and len(lines) == 2
