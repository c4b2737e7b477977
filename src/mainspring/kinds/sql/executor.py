"""Runs the statements of sql tasks, each in a session of its own.

The URL of a database stays here. Errors of connections are told in our words, because those of libpq name hosts, users
and databases. Whatever else is reported is searched for the URL and the password.

A session holds an advisory lock of its run. So a second attempt waits until the session of the first one has
ended, also if the worker of that one is gone: PostgreSQL checks every two seconds whether the client is still there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.domain.errors import InvalidInput
from mainspring.kernel.clock import LoopClock
from mainspring.kinds.sql import KIND
from mainspring.kinds.sql.call import Rows, SqlCall, as_text
from mainspring.kinds.sql.checks import CHECKS
from mainspring.kinds.sql.options import NamedConnection, read_connections
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import Cause
from mainspring.worker.execution.attempt import (
    Attempt,
    AttemptEnding,
    Execute,
    OpenLog,
    StopSupport,
    ending_after_stop,
    failed,
    grace_of,
)
from mainspring.worker.executors.setting import ExecutorSetting

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.pq.abc import PGconn, PGresult

_CONNECT_SECONDS = 10
_ROWS_AT_ONCE = 100
_LOCK_POLL = 0.25
_LONGEST_TIMEOUT = 2**31 - 1  # milliseconds, in PostgreSQL
_SHORTEST_SECRET = 6  # a shorter password would be found in words that have nothing to do with it
_CANCELED, _SYNTAX = "57014", "42601"
# What libpq says about a connection, and what we say. It names hosts, users and databases. The first one counts.
_CONNECTION_PROBLEMS = {
    "pg_hba": "the database refuses this worker (pg_hba.conf)",
    "password": "the database refuses the user or the password",
    "authentication": "the database refuses the user or the password",
    "certificate": "TLS fails",
    "SSL": "TLS fails",
    "does not exist": "there is no such database or user",
    "translate host": "its host is not found",
    "resolve": "its host is not found",
    "refused": "nothing listens at its address",
    "timeout": "it does not answer",
    "timed out": "it does not answer",
    "too many": "the database has no connection left",
    "remaining connection slots": "the database has no connection left",
    "starting up": "the database is starting",
    "shutting down": "the database is shutting down",
}


def build(setting: ExecutorSetting) -> SqlExecutor | None:
    connections = read_connections(setting.options.get("connection") or ())
    if not connections:
        return None
    return SqlExecutor(
        connections,
        kill_grace=setting.kill_grace,
        open_log=setting.open_log,
        shared=setting.confine_all,
        clock=setting.clock,
    )


class SqlExecutor:
    """`shared`: the worker may take runs of all tenants, so a connection must say which ones it is for."""

    killable = True
    isolates = True
    has_processes = False

    def __init__(
        self,
        connections: Mapping[str, NamedConnection],
        *,
        kill_grace: float,
        open_log: OpenLog | None,
        shared: bool,
        clock: LoopClock,
    ) -> None:
        self._connections = connections
        self._kill_grace = kill_grace
        self._open_log = open_log
        self._shared = shared
        self._clock = clock
        self._statements: set[asyncio.Task[AttemptEnding]] = set()
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # its lines name hosts, users and databases
        self.labels = {f"sql.{name}": "yes" for name in connections}

    def offers(self) -> dict[str, Execute]:
        return {KIND.name: self.execute}

    def kill_all(self) -> None:
        for statement in self._statements:
            statement.cancel()

    async def execute(self, attempt: Attempt) -> AttemptEnding:
        news = asyncio.Event()
        attempt.on_stop, attempt.stops_by = news.set, StopSupport.REQUEST
        try:
            call = _call_of(attempt.order)
            connection = self._permitted(call.connection, attempt.order)
        except InvalidInput as error:
            return failed(str(error), retry=False)
        except _NotHere as error:
            return failed(str(error))
        session = _Session(connection, attempt, self._clock, lambda line: self._note(attempt, line))
        statement = asyncio.create_task(self._run(session, call))
        self._statements.add(statement)
        attempt.kill = partial(_cancel, statement)
        try:
            if attempt.stopping is not None or attempt.fenced:
                news.set()
            await self._until_ended(statement, session, attempt, news)
            ending = failed("the statement was interrupted by its worker")
            if not statement.cancelled():
                ending = statement.result()
            if attempt.stopping is not None and not session.committed:
                ending = ending_after_stop(attempt)
            if attempt.log is not None and not attempt.fenced:
                with suppress(asyncio.CancelledError):
                    await attempt.log.finish()
        finally:
            statement.cancel()
            attempt.kill = None
            self._statements.discard(statement)
        return ending

    async def _until_ended(
        self, statement: asyncio.Task[AttemptEnding], session: _Session, attempt: Attempt, news: asyncio.Event
    ) -> None:
        """Returns when the session has ended. If the run is stopped, the statement is cancelled in the database."""
        stop = asyncio.create_task(news.wait())
        try:
            await asyncio.wait({statement, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not statement.done() and session.running:
                with suppress(TimeoutError):
                    async with self._clock.timeout(grace_of(attempt.order, self._kill_grace)):
                        await session.cancel()
                        await asyncio.wait({statement})
            statement.cancel()
            await asyncio.wait({statement})
        finally:
            stop.cancel()

    async def _run(self, session: _Session, call: SqlCall) -> AttemptEnding:
        import psycopg

        try:
            await session.open()
            return AttemptEnding(result=msgspec.Raw(await session.execute(call)))
        except _Failed as failure:
            return failed(session.redacted(str(failure)), retry=failure.retry, cause=Cause(errors=failure.errors))
        except (psycopg.Error, OSError) as error:
            return failed(
                f"sql: the connection {call.connection} was lost", cause=Cause(errors=_class_names(type(error)))
            )
        finally:
            await session.close()

    def _permitted(self, name: str, order: RunOrder) -> NamedConnection:
        connection = self._connections.get(name)
        if connection is None:
            has = ", ".join(sorted(self._connections))
            raise _NotHere(
                f"sql: this worker has no connection {name!r}; it has {has}. "
                f'Start it with --connection {name}=FILE, or let the job require the label "sql.{name}": "yes"'
            )
        if connection.queues is not None and order.queue not in connection.queues:
            raise InvalidInput(f"sql: runs of the queue {order.queue!r} may not use the connection {name!r} here")
        if connection.tenants is None:
            if self._shared:
                raise InvalidInput(
                    f"sql: this worker may take runs of all tenants, so the connection {name!r} must name those that "
                    f"may use it: --connection {name}=FILE,tenants={order.tenant}"
                )
        elif order.tenant not in connection.tenants:
            raise InvalidInput(f"sql: runs of the tenant {order.tenant} may not use the connection {name!r} here")
        return connection

    def _note(self, attempt: Attempt, line: str) -> None:
        if self._open_log is not None:
            self._open_log(attempt).write(line.encode("utf-8", "replace") + b"\n")


class _NotHere(Exception):
    """This worker has no such connection; another worker may have it."""


class _Failed(Exception):
    """The statement or the connection failed."""

    def __init__(self, message: str, *, errors: list[str], retry: bool = True) -> None:
        super().__init__(message)
        self.errors = errors
        self.retry = retry


class _Session:
    """One session for one attempt."""

    def __init__(
        self, connection: NamedConnection, attempt: Attempt, clock: LoopClock, note: Callable[[str], None]
    ) -> None:
        self._connection = connection
        self._attempt, self._order = attempt, attempt.order
        self._clock = clock
        self._note = note
        self._secrets: set[str] = set()
        self._database: AsyncConnection[Any] | None = None
        self.running = False
        self.committed = False

    async def open(self) -> None:
        """Connect, set what bounds the session, and wait for sessions of earlier attempts of the run."""
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        name, order = self._connection.name, self._order
        try:
            url = self._connection.url()
            given = conninfo_to_dict(url)
        except OSError as error:
            raise _Failed(
                f"sql: the file of the connection {name} cannot be read: {error.strerror}", errors=["OSError"]
            ) from None
        except (ValueError, psycopg.ProgrammingError):
            raise _Failed(
                f"sql: the file of the connection {name} does not have the URL of a PostgreSQL",
                errors=["ProgrammingError"],
            ) from None
        self._hide(url, str(given.get("password") or ""))
        own = {
            "application_name": f"mainspring {order.job_id} {order.run_id}"[:63],
            "connect_timeout": _CONNECT_SECONDS,
            "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
        }  # fmt: skip
        settings: dict[str, Any] = {**own, **given, "client_encoding": "utf8"}
        try:
            self._database = await psycopg.AsyncConnection.connect(**settings, autocommit=True)
        except (psycopg.Error, OSError) as error:
            raise _Failed(f"sql: {name}: {_in_our_words(error)}", errors=_class_names(type(error))) from None
        self._hide((self._database.pgconn.password or b"").decode("utf-8", "replace"))  # also that of a passfile
        self._database.add_notice_handler(self._notice)
        milliseconds = str(min(max(1, int(order.timeout * 1000)), _LONGEST_TIMEOUT))
        for setting, value in (
            ("statement_timeout", milliseconds),
            ("idle_in_transaction_session_timeout", milliseconds),
            ("client_connection_check_interval", "2s"),
        ):
            with suppress(psycopg.DatabaseError):  # an older version, or a platform that cannot check connections
                await self._database.execute("select set_config(%s, %s, false)", (setting, value))
        await self._wait_for_earlier()

    async def _wait_for_earlier(self) -> None:
        """Take the lock of the run. Each try is a statement of its own: a session that waits for a lock holds
        a snapshot, for which CREATE INDEX CONCURRENTLY of the other session would wait."""
        assert self._database is not None
        digest = hashlib.sha256(b"mainspring run " + self._order.run_id.bytes).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        said = False
        while True:
            cursor = await self._database.execute("select pg_try_advisory_lock(%s)", (key,))
            row = await cursor.fetchone()
            if row is not None and row[0]:
                return
            if not said:
                self._note("waiting for the session of an earlier attempt of this run")
                said = True
            await self._clock.sleep(_LOCK_POLL)

    async def execute(self, call: SqlCall) -> bytes:
        """Run the statement; returns the result of the run."""
        assert self._database is not None
        started = self._clock.monotonic()
        result = Rows()
        self.running = True
        if call.transaction:
            await self._database.execute("begin")
        async with aclosing(_results(self._database.pgconn, call, self._pause)) as parts:
            async for part in parts:
                _check(part, self._order)
                result.add(part)
        if call.transaction:
            await self._commit()
        self.committed = True
        took = (self._clock.monotonic() - started) * 1000
        cut = f"; the first {len(result.rows)} are kept" if result.truncated else ""
        self._note(f"{result.status} in {took:.0f} ms{cut}")
        return self.redacted(result.encoded().decode()).encode()

    async def _pause(self) -> None:
        """Let others run, and wait while too many notices wait to be shipped."""
        await asyncio.sleep(0)
        log = self._attempt.log
        if log is not None and log.full:
            await log.room()

    async def _commit(self) -> None:
        import psycopg

        assert self._database is not None
        try:
            await self._database.execute("commit")
        except psycopg.Error as error:  # of a deferred constraint, for example
            if error.sqlstate is None:
                raise
            raise _Failed(
                f"{error.diag.message_primary or 'the commit failed'} ({error.sqlstate})",
                errors=_class_names(type(error)),
            ) from None

    async def cancel(self) -> None:
        """Cancel what the session does in the database."""
        import psycopg

        if self._database is not None:
            with suppress(psycopg.Error, OSError):
                await self._database.cancel_safe(timeout=5.0)

    async def close(self) -> None:
        """End the session. A statement that still runs is cancelled first."""
        from psycopg.pq import TransactionStatus

        if self._database is None or self._database.closed:
            return
        if self._database.pgconn.transaction_status == TransactionStatus.ACTIVE:
            with suppress(asyncio.CancelledError):
                await self.cancel()
        self._database.pgconn.finish()

    def _hide(self, *secrets: str) -> None:
        for secret in secrets:
            spellings = {secret, quote(secret, safe=""), msgspec.json.encode(secret).decode()[1:-1]}
            self._secrets |= {text for text in spellings if len(text) >= _SHORTEST_SECRET}

    def redacted(self, text: str) -> str:
        for secret in sorted(self._secrets, key=len, reverse=True):  # the URL, which has the password in it, first
            text = text.replace(secret, "***")
        return text

    def _notice(self, diagnostic: Any) -> None:
        line = f"{diagnostic.severity}: {diagnostic.message_primary}"
        for label, more in (("DETAIL", diagnostic.message_detail), ("HINT", diagnostic.message_hint)):
            line += f"\n{label}: {more}" if more else ""
        self._note(self.redacted(line))


async def _results(
    database: PGconn, call: SqlCall, pause: Callable[[], Awaitable[None]]
) -> AsyncGenerator[PGresult, None]:
    """The parts of the result. The extended protocol takes exactly one statement, and a part at a time is kept in
    memory. `pause` is called between two parts."""
    from psycopg import capabilities

    parameters = [as_text(value) for value in call.parameters]
    database.send_query_params(call.statement.encode(), parameters)
    if capabilities.has_stream_chunked():
        database.set_chunked_rows_mode(_ROWS_AT_ONCE)
    else:
        database.set_single_row_mode()
    loop, ready, socket = asyncio.get_running_loop(), asyncio.Event(), database.socket
    loop.add_reader(socket, ready.set)
    try:
        while database.flush():
            loop.add_writer(socket, ready.set)
            await _until(ready)
            loop.remove_writer(socket)
            database.consume_input()
        while True:
            while database.is_busy():
                await _until(ready)
                database.consume_input()
                await pause()
            if (part := database.get_result()) is None:
                return
            yield part
            await pause()
    finally:
        loop.remove_writer(socket)
        loop.remove_reader(socket)


async def _until(ready: asyncio.Event) -> None:
    await ready.wait()
    ready.clear()


def _check(part: PGresult, order: RunOrder) -> None:
    """Raise _Failed if the result is an error."""
    from psycopg.errors import lookup
    from psycopg.pq import DiagnosticField, ExecStatus

    if part.status in (ExecStatus.COPY_IN, ExecStatus.COPY_OUT, ExecStatus.COPY_BOTH):
        raise _Failed("COPY from or to the client is not possible here", errors=["NotSupportedError"], retry=False)
    if part.status not in (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE):
        return

    def said(field: DiagnosticField) -> str:
        return (part.error_field(field) or b"").decode("utf-8", "replace")

    state = said(DiagnosticField.SQLSTATE)
    try:
        names = _class_names(lookup(state))
    except KeyError:
        names = ["DatabaseError"]
    if state == _CANCELED and "statement timeout" in said(DiagnosticField.MESSAGE_PRIMARY):
        raise _Failed(f"timed out after {format_duration(order.timeout)} (statement_timeout)", errors=names)
    message = f"{said(DiagnosticField.MESSAGE_PRIMARY) or 'the session has ended'} ({state})"
    for label, field in (("detail", DiagnosticField.MESSAGE_DETAIL), ("hint", DiagnosticField.MESSAGE_HINT)):
        message += f"\n{label}: {said(field)}" if said(field) else ""
    raise _Failed(message, errors=names, retry=state != _SYNTAX)


def _call_of(order: RunOrder) -> SqlCall:
    """The payload overrides the setup, because a replay or a step may have changed it."""
    call: SqlCall | None = None
    if (payload := bytes(memoryview(order.payload))) not in (b"", b"null"):
        call = CHECKS.call_in(payload.decode())
    if call is None and order.setup is not None:
        call = order.setup.sql
    if call is None:
        raise InvalidInput(f"sql: a sql run needs a statement such as {CHECKS.example}", field="sql")
    return call


def _in_our_words(error: Exception) -> str:
    text = str(error)
    for mark, words in _CONNECTION_PROBLEMS.items():
        if mark in text:
            return words
    return "the connection cannot be opened"


def _class_names(kind: type[BaseException]) -> list[str]:
    """The class of the error and its bases, for retry rules: UndefinedTable, ProgrammingError, DatabaseError, Error."""
    return [one.__name__ for one in kind.__mro__ if one not in (Exception, BaseException, object)]


def _cancel(statement: asyncio.Task[AttemptEnding]) -> None:
    statement.cancel()
