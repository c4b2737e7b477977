"""Jobs that run SQL statements, from submission to result, on real processes."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from mainspring.worker.processes.watchdog.namespaces import why_not
from tests.kinds.sql_statements import url_file
from tests.processes.cluster import SLOW, Cluster, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
async def target(empty_url: str) -> str:
    """Another database than that of the servers."""
    return empty_url


async def test_a_job_refreshes_a_view_on_a_schedule_of_its_own(cluster: Cluster, target: str, tmp_path: Path) -> None:
    database = await asyncpg.connect(target)
    await database.execute("create table orders (n int); create materialized view sales as select sum(n) from orders")
    await database.execute("insert into orders values (3), (4)")
    await cluster.server()
    worker = await cluster.worker("--connection", url_file(tmp_path, target, "warehouse"))
    call = {"connection": "warehouse", "statement": "refresh materialized view sales"}
    job_id = await cluster.submit(sql=call)
    run = await cluster.ended(job_id)
    assert (run["status"], run["result"]) == ("SUCCESS", {"status": "REFRESH MATERIALIZED VIEW"})
    assert await database.fetchval("select * from sales") == 7
    job = (await cluster.http.get(f"/v1/jobs/{job_id}")).json()
    assert (job["task"], job["sql"], job["http"], job["command"]) == ("sql", call, None, None)
    log = (await cluster.http.get(f"/v1/runs/{run['run_id']}/logs")).text
    assert "REFRESH MATERIALIZED VIEW in " in log
    workers = (await cluster.http.get("/v1/workers")).json()["workers"]
    assert workers[0]["labels"]["sql.warehouse"] == "yes"
    # The URL is nowhere but in its file.
    everything = cluster.said(worker) + log + str(job) + str(run) + str(workers)
    assert target not in everything and "postgresql://" not in everything
    await database.close()


async def test_a_cancelled_job_ends_its_statement(cluster: Cluster, target: str, tmp_path: Path) -> None:
    database = await asyncpg.connect(target)
    await cluster.server()
    await cluster.worker("--connection", url_file(tmp_path, target, "warehouse"))
    job_id = await cluster.submit(sql={"connection": "warehouse", "statement": "select pg_sleep(700)"})

    async def sessions() -> int:
        return int(
            await database.fetchval(
                "select count(*) from pg_stat_activity where query like 'select pg_sleep(700)%' and state = 'active'"
            )
        )

    async def runs() -> bool:
        return await sessions() == 1

    await eventually(runs, SLOW, "the statement runs")
    assert (await cluster.http.delete(f"/v1/jobs/{job_id}")).status_code == 200
    assert (await cluster.ended(job_id))["status"] == "CANCELLED"
    assert await sessions() == 0
    await database.close()


@pytest.mark.slow
async def test_the_database_ends_the_statement_of_a_worker_that_was_killed(
    cluster: Cluster, target: str, tmp_path: Path
) -> None:
    """And the next attempt, at another worker, begins after that."""
    database = await asyncpg.connect(target)
    await database.execute("create table attempts (n serial, at timestamptz default clock_timestamp())")
    await cluster.server()
    connection = url_file(tmp_path, target, "warehouse")
    worker = await cluster.worker("--connection", connection, "--lease", "7s")
    statement = (
        "with w as (insert into attempts default values returning n) "
        "select n, case when n = 1 then pg_sleep(701) end from w"
    )
    job_id = await cluster.submit(sql={"connection": "warehouse", "statement": statement}, retry={"base": "10ms"})

    async def session() -> int | None:
        pid: int | None = await database.fetchval("select pid from pg_stat_activity where wait_event = 'PgSleep'")
        return pid

    first = await eventually(session, SLOW, "the statement runs")
    worker.kill()
    await cluster.worker("--connection", connection)
    run = await cluster.ended(job_id, within=3 * SLOW)
    assert (run["status"], run["result"]["rows"][0]["n"]) == ("SUCCESS", 2)
    assert not await database.fetchval("select count(*) from pg_stat_activity where pid = $1", first)
    assert await database.fetchval("select count(*) from attempts") == 1, "what the first attempt did is rolled back"
    await database.close()


@pytest.mark.skipif(why_not() is not None, reason=f"no pid namespace can be had here: {why_not()}")
async def test_a_command_does_not_see_the_url(cluster: Cluster, target: str, tmp_path: Path) -> None:
    await cluster.server()
    connection = url_file(tmp_path, target, "warehouse")
    await cluster.worker("--connection", connection)
    run = await cluster.ended(await cluster.submit(command=f"cat {connection.partition('=')[2]}; echo looked"))
    assert "looked" in run["result"]["output"] and target not in run["result"]["output"]


async def test_a_run_of_another_tenant_may_not_use_the_connection(
    cluster: Cluster, target: str, tmp_path: Path
) -> None:
    """The server says to whom a run belongs."""
    await cluster.server()
    await cluster.worker("--connection", url_file(tmp_path, target, "warehouse") + ",tenants=7,queues=default")
    run = await cluster.ended(await cluster.submit(sql={"connection": "warehouse", "statement": "select 1"}))
    assert (run["status"], run["attempt_number"]) == ("FAILED", 1)
    assert run["error_message"] == "sql: runs of the tenant 1 may not use the connection 'warehouse' here"


async def test_a_step_uses_the_result_of_another_as_a_parameter(cluster: Cluster, target: str, tmp_path: Path) -> None:
    await cluster.server()
    await cluster.worker("--connection", url_file(tmp_path, target, "warehouse"))
    steps = [
        {"name": "count", "sql": {"connection": "warehouse", "statement": "select 41 as n"}},
        {
            "name": "use", "depends_on": ["count"],
            "sql": {
                "connection": "warehouse", "statement": "select $1::int + 1 as more",
                "parameters": [{"$from": "count", "path": "rows.0.n"}],
            },
        },
    ]  # fmt: skip
    made = await cluster.http.post("/v1/workflows", json={"workflow_id": "nightly", "steps": steps})
    assert made.status_code == 201, made.text
    started = await cluster.http.post("/v1/workflows/nightly:runNow", json={})
    assert started.status_code < 300, started.text

    async def ended() -> dict[str, object]:
        answer = (await cluster.http.get("/v1/runs", params={"task": "sql", "limit": 10})).json()
        done = [run for run in answer["runs"] if run["status"] == "SUCCESS"]
        return {str(run.get("step")): run for run in done} if len(done) == 2 else {}

    found = await eventually(ended, SLOW, "both steps have ended")
    results = [(await cluster.http.get(f"/v1/runs/{run['run_id']}")).json()["result"] for run in found.values()]  # type: ignore[index]
    assert {"status": "SELECT 1", "row_count": 1, "rows": [{"more": 42}]} in results


async def test_the_command_line_submits_a_statement(cluster: Cluster, target: str, tmp_path: Path) -> None:
    await cluster.server()
    await cluster.worker("--connection", url_file(tmp_path, target, "warehouse"))
    done = cluster.cli(
        "submit", "--sql", "select $1 || $2 as words", "--connection", "warehouse", "--parameter", "good",
        "--parameter", "day", "--wait",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"words":"goodday"' in done.stdout
    refused = cluster.cli("submit", "--sql", "select 1")
    assert refused.returncode == 2 and "--sql needs --connection" in refused.stderr


async def test_a_request_with_a_wrong_member_is_refused_by_name(cluster: Cluster) -> None:
    await cluster.server()
    for given, field in (
        ({"statement": "select 1"}, "sql.connection"),
        ({"connection": "a", "statement": "x", "parameter": [1]}, "sql.parameter"),
        ({"connection": "a", "statement": "x", "transaction": 1}, "sql.transaction"),
        ({"connection": "a", "statement": "x", "queue": "q"}, "sql.queue"),
    ):
        refused = await cluster.http.post("/v1/jobs", json={"sql": given})
        assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    both = await cluster.http.post("/v1/jobs", json={"sql": {"connection": "a", "statement": "x"}, "payload": {}})
    assert both.json()["detail"] == "sql and payload cannot be combined"


async def test_a_worker_with_a_wrong_connection_does_not_start(cluster: Cluster) -> None:
    done = cluster.cli("worker", "--connection", "warehouse=/nowhere/at/all")
    assert done.returncode == 2
    assert "the file of warehouse cannot be read: No such file or directory" in done.stderr
