"""The task `sql` on a real PostgreSQL: results, bounds, notices, transactions, and who may use a connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from psycopg.conninfo import conninfo_to_dict

from mainspring.cli.task_options import flags_of_kinds
from mainspring.domain.errors import InvalidInput
from mainspring.kernel.ids import uuid7
from mainspring.kinds.registry import kind_of_task
from mainspring.kinds.sql.call import MOST_BYTES, MOST_ROWS
from mainspring.roles.up import UpOptions, worker_program
from mainspring.worker.execution.attempt import Stop
from tests.domain.requests_as_sent import amended, defined
from tests.kinds.sql_statements import LONGEST, Statements, a_statement, is_running, seen, url_file

pytestmark = pytest.mark.anyio
SECRET = "s3cret-pa55+word"


@pytest.fixture
async def database(empty_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(empty_url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def here(empty_url: str, tmp_path: Path) -> str:
    return url_file(tmp_path, empty_url)


async def test_rows_are_the_result_as_json_has_their_types(here: str) -> None:
    result = await Statements(here).result(
        "select $1::int as n, $2::text as t, $3::jsonb as j, 1.5::float8 as f, 1.10::numeric as d, true as b, "
        "null as z, date '2026-11-18' as day, array[1,2] as a, 'NaN'::float8 as nan, 1 as n",
        7, "it's", {"a": [1, None]},
    )  # fmt: skip
    assert result == {
        "status": "SELECT 1",
        "row_count": 1,
        "rows": [
            {
                "n": 7, "t": "it's", "j": {"a": [1, None]}, "f": 1.5, "d": "1.10", "b": True, "z": None,
                "day": "2026-11-18", "a": "{1,2}", "nan": "NaN", "n_2": 1,
            }
        ],
    }  # fmt: skip


async def test_names_and_values_that_json_does_not_take(here: str) -> None:
    result = await Statements(here).result(
        """select 1 as n, 2 as n_2, 3 as n, 4 as "?column?", '{"a": "\\u0000"}'::json as nul, '\\x00'::bytea as bytes"""
    )
    assert result["rows"] == [{"n": 1, "n_2": 2, "n_3": 3, "?column?": 4, "nul": '{"a": "\\u0000"}', "bytes": "\\x00"}]


async def test_a_statement_without_rows_tells_its_status(here: str, database: asyncpg.Connection) -> None:
    await database.execute("create table t (n int)")
    worker = Statements(here)
    assert await worker.result("insert into t select generate_series(1, $1::int)", 3) == {"status": "INSERT 0 3"}
    assert await worker.result("select * from t where n > 100") == {"status": "SELECT 0", "row_count": 0, "rows": []}
    assert "INSERT 0 3 in " in worker.said


async def test_values_in_a_statement_need_no_escapes(here: str) -> None:
    result = await Statements(here).result("select '100%' like '%\\%' as percent, '?' || '%s' || ':x' as marks")
    assert result["rows"] == [{"percent": True, "marks": "?%s:x"}]


async def test_rows_beyond_the_bound_are_counted_and_marked(here: str, database: asyncpg.Connection) -> None:
    worker = Statements(here)
    result = await worker.result("select n from generate_series(1, 5000) as n")
    assert (len(result["rows"]), result["row_count"], result["truncated"]) == (MOST_ROWS, 5000, True)
    assert result["status"] == "SELECT 5000"
    result = await worker.result("select repeat('x', 10000) as x from generate_series(1, 100)")
    assert 0 < len(result["rows"]) < MOST_BYTES // 10000 + 1
    assert (result["row_count"], result["truncated"]) == (100, True)
    result = await worker.result("select repeat('x', 1000000) as x")
    assert (result["rows"], result["row_count"], result["truncated"]) == ([], 1, True)
    # What a statement writes is written whole, however little of its result is kept.
    await database.execute("create table t (n int)")
    result = await worker.result("insert into t select generate_series(1, 3000) returning n")
    assert (result["row_count"], result["truncated"]) == (3000, True)
    assert await database.fetchval("select count(*) from t") == 3000


async def test_an_older_libpq_reads_one_row_at_a_time(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psycopg.capabilities.has_stream_chunked", lambda: False)
    result = await Statements(here).result("select n from generate_series(1, 1500) as n")
    assert (len(result["rows"]), result["rows"][-1], result["row_count"]) == (MOST_ROWS, {"n": MOST_ROWS}, 1500)


async def test_notices_are_the_log(here: str) -> None:
    worker = Statements(here)
    await worker.result("do $$ begin raise notice 'half %', 'done' using hint = 'wait'; raise warning 'hm'; end $$")
    assert "NOTICE: half done\nHINT: wait\n" in worker.said
    assert "WARNING: hm\n" in worker.said
    assert worker.log.finished


async def test_a_statement_runs_in_a_transaction_unless_the_job_says_otherwise(
    here: str, database: asyncpg.Connection
) -> None:
    await database.execute("create table t (n int)")
    worker = Statements(here)
    assert "VACUUM cannot run inside a transaction block (25001)" in await worker.error("vacuum t")
    assert await worker.result("vacuum t", transaction=False) == {"status": "VACUUM"}
    assert await worker.result("create index concurrently i on t (n)", transaction=False) == {"status": "CREATE INDEX"}


async def test_what_the_commit_refuses_fails_the_run(here: str, database: asyncpg.Connection) -> None:
    await database.execute("create table t (n int unique deferrable initially deferred)")
    ending = await Statements(here).run("insert into t values (1), (1)")
    assert ending.status == "FAILED" and ending.cause is not None
    assert "duplicate key value" in (ending.error or "") and "UniqueViolation" in ending.cause.errors


async def test_an_error_names_its_state_and_class(here: str, database: asyncpg.Connection) -> None:
    await database.execute("create table t (n int)")
    worker = Statements(here)
    ending = await worker.run("select * from nowhere")
    assert (ending.error, ending.retry) == ('relation "nowhere" does not exist (42P01)', True)
    assert ending.cause is not None and ending.cause.errors[:2] == ["UndefinedTable", "ProgrammingError"]
    assert not (await worker.run("selec 1")).retry, "it stays wrong"
    assert "cannot insert multiple commands" in await worker.error("select 1; select 2")
    assert "COPY from or to the client is not possible here" in await worker.error("copy (select 1) to stdout")
    assert "COPY from or to the client is not possible here" in await worker.error("copy t from stdin")
    assert await worker.result("select 1 as one"), "the worker goes on"


async def test_a_cancelled_run_is_cancelled_in_the_database(here: str, database: asyncpg.Connection) -> None:
    await database.execute("create table t (n int)")
    worker = Statements(here)
    attempt, ending = worker.start("with w as (insert into t values (1)) select pg_sleep(600)")
    await seen(lambda: is_running(database, "pg_sleep(600)"))
    worker.runner.stop(attempt, Stop.CANCEL)
    async with asyncio.timeout(LONGEST):
        assert (await ending).status == "CANCELLED"
    assert not await is_running(database, "pg_sleep(600)")
    assert await database.fetchval("select count(*) from t") == 0


async def test_a_killed_attempt_leaves_nothing_in_the_database(here: str, database: asyncpg.Connection) -> None:
    worker = Statements(here)
    _, ending = worker.start("select pg_sleep(601)")
    await seen(lambda: is_running(database, "pg_sleep(601)"))
    worker.runner.kill_all()

    async def gone() -> bool:
        return not await is_running(database, "pg_sleep(601)")

    await seen(gone)
    async with asyncio.timeout(LONGEST):
        await asyncio.wait({ending})


async def test_a_statement_that_takes_too_long_times_out(here: str, database: asyncpg.Connection) -> None:
    assert await Statements(here).error("select pg_sleep(602)", timeout=0.5) == "timed out after 500ms"
    assert not await is_running(database, "pg_sleep(602)")


async def test_the_database_ends_a_statement_whose_worker_cannot(here: str) -> None:
    """Each session has the timeout of the attempt, and looks whether its client is still there."""
    result = await Statements(here).result(
        "select name, setting, unit from pg_settings where name = any (string_to_array($1, ',')) order by name",
        "client_connection_check_interval,idle_in_transaction_session_timeout,statement_timeout", timeout=7.0,
    )  # fmt: skip
    assert [row["setting"] for row in result["rows"]] == ["2000", "7000", "7000"]


async def test_a_timeout_of_weeks_is_as_long_as_postgresql_takes_it(here: str) -> None:
    result = await Statements(here).result("select current_setting('statement_timeout') as t", timeout=30 * 86400.0)
    assert result["rows"] == [{"t": "2147483647ms"}]


async def test_others_run_while_a_large_result_is_read(here: str) -> None:
    worker = Statements(here)
    _, large = worker.start("select repeat('x', 100) from generate_series(1, 300000)")
    turns = 0
    while not large.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 1000, "the loop has a turn after each part of the result"
    ending = await large
    assert ending.result is not None and b'"row_count":300000' in bytes(ending.result)


async def test_notices_wait_until_the_log_has_room(here: str, database: asyncpg.Connection) -> None:
    worker = Statements(here)
    worker.log.most = 1000
    noisy = "do $$ begin for i in 1 .. 60000 loop raise notice '%', repeat('n', 100); end loop; end $$"
    _, ending = worker.start(noisy)
    async with asyncio.timeout(LONGEST):
        await worker.log.waited_for.wait()
        assert not ending.done() and len(worker.log.data) < 10_000_000
        worker.log.most = float("inf")
        worker.log.has_room.set()
        assert (await ending).status == "SUCCESS"
    assert worker.said.count("NOTICE: nnn") == 60_000


async def test_a_second_attempt_waits_for_the_session_of_the_first(here: str, database: asyncpg.Connection) -> None:
    run_id = uuid7()
    first, second = Statements(here), Statements(here)  # two workers
    _, ended = first.take(a_statement("select pg_sleep(603)", run_id=run_id))
    await seen(lambda: is_running(database, "pg_sleep(603)"))
    _, other = second.take(a_statement("select 'second' as attempt", run_id=run_id, fence=2, attempt=2))
    async with asyncio.timeout(LONGEST):
        await second.log.said(b"waiting for the session of an earlier attempt of this run")
        assert not other.done()
        third = await Statements(here).result("select 'another run' as it")
        assert third["rows"] == [{"it": "another run"}]
        first.runner.kill_all()
        await asyncio.wait({ended})
        assert (await other).status == "SUCCESS"


async def test_a_run_that_waits_for_an_earlier_session_is_cancelled_at_once(
    here: str, database: asyncpg.Connection
) -> None:
    run_id = uuid7()
    first, second = Statements(here), Statements(here, kill_grace=600.0)
    _, ended = first.take(a_statement("select pg_sleep(604)", run_id=run_id))
    await seen(lambda: is_running(database, "pg_sleep(604)"))
    attempt, other = second.take(a_statement("select 1", run_id=run_id, fence=2))
    async with asyncio.timeout(LONGEST):
        await second.log.said(b"waiting for the session")
        second.runner.stop(attempt, Stop.CANCEL)
        assert (await other).status == "CANCELLED"
        first.runner.kill_all()
        await asyncio.wait({ended})


async def test_a_connection_may_be_for_some_queues_and_tenants(here: str) -> None:
    worker = Statements(f"{here},queues=reports+billing,tenants=1+7")
    assert await worker.result("select 1 as one", queue="reports", tenant=7)
    ending = await worker.run("select 1", queue="default", tenant=7)
    assert (ending.error, ending.retry) == (
        "sql: runs of the queue 'default' may not use the connection 'here' here", False,
    )  # fmt: skip
    ending = await worker.run("select 1", queue="billing", tenant=2)
    assert (ending.error, ending.retry) == ("sql: runs of the tenant 2 may not use the connection 'here' here", False)
    assert "tenant None may not" in await worker.error("select 1", queue="billing", tenant=None)


async def test_a_worker_of_all_tenants_needs_to_know_whose_connection_it_is(here: str) -> None:
    ending = await Statements(here, shared=True).run("select 1", tenant=3)
    assert "must name those that may use it: --connection here=FILE,tenants=3" in (ending.error or "")
    assert not ending.retry
    assert await Statements(f"{here},tenants=3", shared=True).result("select 1 as one", tenant=3)


async def test_a_connection_that_the_worker_does_not_have(here: str) -> None:
    worker = Statements(here)
    ending = await worker.run("select 1", connection="elsewhere")
    assert "this worker has no connection 'elsewhere'; it has here" in (ending.error or "")
    assert ending.retry, "another worker may have it"
    assert worker.executor.labels == {"sql.here": "yes"}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"postgresql://bob:{SECRET}@127.0.0.1:1/vault", "nothing listens at its address"),
        (f"postgresql://bob:{SECRET}@no-such-host.invalid/vault", "its host is not found"),
        (f"postgresql://bob:{SECRET}@[half/vault", "does not have the URL of a PostgreSQL"),
        (f"host=127.0.0.1 user=bob password='{SECRET}", "does not have the URL of a PostgreSQL"),
        (f"postgresql://bob:{SECRET}@127.0.0.1:1/vault?sslmode=verify-full&sslrootcert=/none", "nothing listens"),
        (f"mysql://bob:{SECRET}@127.0.0.1/vault", "does not have the URL of a PostgreSQL"),
        (SECRET, "does not have the URL of a PostgreSQL"),
    ],
)
async def test_an_error_of_the_connection_does_not_tell_where_it_leads(
    url: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Statements(url_file(tmp_path, url))
    error = await worker.error("select 1")
    assert words in error
    for told in (error, worker.said, caplog.text):
        assert not any(part in told for part in (SECRET, "bob", "vault", "127.0.0.1", "no-such-host")), told


async def test_a_refused_user_is_not_told(empty_url: str, tmp_path: Path) -> None:
    known = conninfo_to_dict(empty_url)
    host, port = known["host"], known.get("port", 5432)
    url = f"host={host} port={port} user=nobody-known password={SECRET} dbname=vault"
    error = await Statements(url_file(tmp_path, url)).error("select 1")
    assert error.startswith("sql: here: ")
    assert not any(part in error for part in (SECRET, "nobody-known", "vault", str(host)))


async def test_what_a_statement_says_does_not_contain_the_password(empty_url: str, tmp_path: Path) -> None:
    secret = Path(str(conninfo_to_dict(empty_url)["passfile"])).read_text().strip().rpartition(":")[2]
    assert len(secret) > 8
    worker = Statements(url_file(tmp_path, empty_url))
    result = await worker.result("select $1 as told, $2 as url", secret, empty_url)
    assert result["rows"] == [{"told": "***", "url": "***"}]
    await worker.result(f"do $$ begin raise notice 'it is {secret}'; end $$")
    assert "NOTICE: it is ***" in worker.said
    error = await worker.error(f"do $$ begin raise exception 'it is {secret}'; end $$")
    assert "it is ***" in error
    assert secret not in worker.said + error


async def test_the_file_is_read_for_each_session(empty_url: str, tmp_path: Path) -> None:
    worker = Statements(url_file(tmp_path, "postgresql://127.0.0.1:1/x"))
    assert "nothing listens" in await worker.error("select 1")
    url_file(tmp_path, empty_url)
    assert await worker.result("select 1 as one")
    os.remove(tmp_path / "here.url")
    assert await worker.error("select 1") == (
        "sql: the file of the connection here cannot be read: No such file or directory"
    )


async def test_a_lost_session_fails_the_attempt(here: str, database: asyncpg.Connection) -> None:
    worker = Statements(here)
    _, ending = worker.start("select pg_sleep(605)")
    await seen(lambda: is_running(database, "pg_sleep(605)"))
    await database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep(605)%' "
        "and pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(LONGEST):
        ended = await ending
    assert (ended.status, ended.retry) == ("FAILED", True)
    assert "terminating connection" in (ended.error or "") or "was lost" in (ended.error or "")


async def test_large_parameters_arrive_whole(here: str) -> None:
    result = await Statements(here).result("select length($1) as n", "x" * 3_000_000)
    assert result["rows"] == [{"n": 3_000_000}]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"connection": "a b", "statement": "select 1"}, "sql.connection"),
        ({"connection": "postgresql://u:p@h/d", "statement": "select 1"}, "sql.connection"),
        ({"connection": "a", "statement": " \n"}, "sql.statement"),
        ({"connection": "a", "statement": "select '\0'"}, "sql.statement"),
        ({"connection": "a", "statement": "x" * 200_000}, "sql.statement"),
        ({"connection": "a", "statement": "x", "parameters": [0] * 1001}, "sql.parameters"),
        ({"connection": "a", "statement": "x", "parameters": ["\0"]}, "sql.parameters"),
    ],
)
def test_a_wrong_call_is_refused_by_its_field(given: dict[str, object], field: str) -> None:
    with pytest.raises(Exception) as refused:
        defined({"sql": given})
    assert getattr(refused.value, "field", None) == field, refused.value


def test_a_call_is_kept_changed_and_replaced() -> None:
    call = {"connection": "a", "statement": "select $1", "parameters": [1]}
    job = defined({"sql": call, "schedule": "manual"})
    assert job.task == "sql" and job.spec.setup is not None and job.spec.setup.sql is not None
    assert amended(job, {"owner": "me"}).spec.setup == job.spec.setup
    other = amended(job, {"sql": {"connection": "b", "statement": "select 2"}})
    assert other.spec.setup is not None and other.spec.setup.sql is not None
    assert (other.spec.setup.sql.connection, other.spec.setup.sql.parameters) == ("b", [])
    assert amended(job, {"command": "true"}).spec.setup is None
    for field, value in (("env", {"A": "b"}), ("run_as", "bob"), ("limits", {"output": "1MB"})):
        with pytest.raises(InvalidInput, match="has no effect on a sql task"):
            defined({"sql": call, field: value})


@pytest.mark.parametrize(
    "given",
    [
        "warehouse", "=file", "a b=file", "a=", "a=f,queue=x", "a=f,queues=", "a=f,tenants=acme",
        "a=f,queues=x,queues=y",
    ],
)  # fmt: skip
def test_a_connection_that_cannot_be_read_is_refused_at_the_start(given: str) -> None:
    kind = kind_of_task("sql")
    assert kind is not None
    with pytest.raises(InvalidInput, match=r"^connection: "):
        kind.part("options").OPTIONS.check_worker({"connection": [given]})


def test_a_worker_without_the_file_or_twice_the_name_does_not_start(tmp_path: Path) -> None:
    kind = kind_of_task("sql")
    assert kind is not None
    check = kind.part("options").OPTIONS.check_worker
    with pytest.raises(InvalidInput, match="the file of a cannot be read: No such file or directory"):
        check({"connection": [f"a={tmp_path / 'none'}"]})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidInput, match="the file of a cannot be read: it is empty"):
        check({"connection": [f"a={tmp_path / 'empty'}"]})
    (tmp_path / "url").write_text("postgresql:///x")
    with pytest.raises(InvalidInput, match="a is given twice"):
        check({"connection": [f"a={tmp_path / 'url'}"] * 2})
    assert check({"connection": [f"a={tmp_path / 'url'},tenants=1"]}) == [tmp_path / "url"]
    assert check({}) == check({"connection": None}) == []


def test_a_worker_without_the_extra_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = kind_of_task("sql")
    assert kind is not None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match="needs psycopg") as refused:
        kind.part("options").OPTIONS.check_worker({"connection": [f"a={tmp_path / 'url'}"]})
    assert refused.value.hint == f"pip install '{kind.requires}'"
    assert kind.part("options").OPTIONS.check_worker({}) == []


def test_the_worker_of_up_gets_the_connections(tmp_path: Path) -> None:
    options = UpOptions(
        data=tmp_path, host="127.0.0.1", port=8700, database=None, app=None, postgres_bin=None, slots=None,
        queues=None, log_level="info", kind_flags=flags_of_kinds({"connection": [url_file(tmp_path, "postgresql:///x")]}),
    )  # fmt: skip
    argv = worker_program(options).argv
    assert argv[argv.index("--connection") + 1] == f"here={tmp_path / 'here.url'}"


@pytest.mark.parametrize(
    ("given", "call"),
    [
        ({}, None),
        ({"sql": "vacuum", "connection": "w", "no_transaction": True},
         {"connection": "w", "statement": "vacuum", "transaction": False}),
        ({"sql": "select $1, $2", "connection": "w", "parameter": ["7", "x"]},
         {"connection": "w", "statement": "select $1, $2", "parameters": [7, "x"]}),
    ],
)  # fmt: skip
def test_the_options_of_submit_describe_the_call(given: dict[str, object], call: object) -> None:
    kind = kind_of_task("sql")
    assert kind is not None
    none = {"sql": None, "connection": None, "parameter": None, "no_transaction": False}
    assert kind.part("options").OPTIONS.call(none | given) == call


@pytest.mark.parametrize("given", [{"connection": "w"}, {"parameter": ["1"]}, {"no_transaction": True}, {"sql": "x"}])
def test_options_that_need_each_other(given: dict[str, object]) -> None:
    kind = kind_of_task("sql")
    assert kind is not None
    none = {"sql": None, "connection": None, "parameter": None, "no_transaction": False}
    with pytest.raises(InvalidInput, match="need"):
        kind.part("options").OPTIONS.call(none | given)
