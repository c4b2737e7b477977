"""The event stream tells what has changed, to those who may know it, and nobody can hold it up."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.live import streams as live
from mainspring.operations.live.effects import ListsChange
from mainspring.roles.assembly import Assembly
from mainspring.store import watched_objects
from mainspring.wire.exchange import Progress
from tests.api.bookkeeping import problem
from tests.attack.edge import HEAD, an_edge
from tests.live.scene import watching
from tests.logs.sockets import on_a_socket
from tests.operations.backfilling import backfill_worker_of, run_all
from tests.operations.backfilling import begin as begin_backfill
from tests.operations.bulk import begin, performer_of, read
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants
from tests.operations.test_events import a_backfilled_job, a_late_job
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

NIGHTLY = {"job_id": "nightly", "task": "noop", "schedule": "@daily"}


async def a_run(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def test_lists_are_told_about_after_the_change(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient, worker: HandWorker
) -> None:
    async with watching(assembly, served, "jobs", "runs", "queues") as watcher:
        assert (await api.post("/v1/jobs", json=NIGHTLY)).status_code == 201
        await watcher.told("jobs")
        assert watcher.of("runs") == []
        assert (await api.post("/v1/jobs/nightly:pause")).status_code == 200
        await watcher.told("jobs")
        await a_run(api)
        await watcher.told("runs")
        [order] = await worker.claim()
        await watcher.told("queues")
        await worker.report(outcome(order))
        await watcher.told("runs")
        assert (await api.post("/v1/queues/default:pause", json={})).status_code == 200
        await watcher.told("queues")
    assert watcher.events[0][2] == {"topics": ["jobs", "runs", "queues"], "beat": 5.0}
    marks = [int(mark.partition(":")[2]) for mark, _, _ in watcher.events]
    assert marks == sorted(set(marks))


async def test_a_bulk_operation_is_told_about_as_it_goes(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient
) -> None:
    for number in range(3):
        await api.post("/v1/jobs", json={**NIGHTLY, "job_id": f"nightly-{number}"})
    async with watching(assembly, served, "jobs") as watcher:
        began = await begin(api, "jobs", "pause", ids=[f"nightly-{number}" for number in range(3)])
        await watcher.told("jobs")
        before = watcher.counted("jobs")
        await watcher.told("jobs", performer_of(assembly).run_once)
        assert watcher.counted("jobs") == before + 3
        assert (await read(api, began))["done"] == 3


async def test_a_missed_fire_is_told_about_when_it_is_committed(
    assembly: Assembly,
    served: httpx.AsyncClient,
    api: httpx.AsyncClient,
    connection: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watching(assembly, served, "jobs", "queues") as watcher:
        await a_late_job(api, connection)
        await watcher.told("jobs")
        before = watcher.counted("jobs")

        handle = ListsChange.handle

        async def broken(self: Any, *arguments: Any) -> None:
            await handle(self, *arguments)
            raise ValueError("the transaction is undone")

        with monkeypatch.context() as patch:
            patch.setattr(ListsChange, "handle", broken)
            assert await fire_due(assembly, connection) == 0
        await assembly.services.streams.run_once()
        assert watcher.counted("jobs") == before
        assert assembly.node is not None
        assembly.node.firer._aside.clear()
        await fire_due(assembly, connection)
        await watcher.told("jobs")
        assert watcher.counted("jobs") == before + 1
        assert watcher.of("queues") == []


async def test_the_end_of_a_backfill_is_told_about_once(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient, worker: HandWorker
) -> None:
    told: list[tuple[int, str, int]] = []
    assembly.signals.lists_changed.subscribe(
        lambda tenant, lists, count: told.extend((tenant, name, count) for name in lists)
    )
    await a_backfilled_job(api, assembly)
    await begin_backfill(api, "report", concurrency=3)
    async with watching(assembly, served, "jobs", "runs") as watcher:
        await run_all(backfill_worker_of(assembly), worker, 3)
        await watcher.told("jobs")
    assert told == [(DEFAULT_TENANT, "jobs", 1), (DEFAULT_TENANT, "runs", 1)]


async def test_what_is_refused_or_only_read_is_not_a_change(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient
) -> None:
    async with watching(assembly, served, "jobs", "queues") as watcher:
        assert (await api.post("/v1/jobs", json={"task": 1})).status_code == 422
        assert (await api.post("/v1/jobs/absent:pause")).status_code == 404
        assert (await api.post("/v1/jobs:validate", json=NIGHTLY)).status_code == 200
        assert (await api.get("/v1/jobs")).status_code == 200
        assert (await api.post("/v1/queues/default:pause", json={})).status_code == 200
        await watcher.told("queues")
        assert watcher.of("jobs") == []


async def test_many_changes_are_one_event_with_their_number(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient
) -> None:
    async with watching(assembly, served, "runs") as watcher:
        jobs = [{"task": "noop"}] * 5000
        assert (await api.post("/v1/jobs:batch", json=jobs)).status_code == 201
        told = await watcher.told("runs")
        assert told["changes"] >= 5000
        await assembly.services.streams.run_once()
        assert len(watcher.of("runs")) == 1


async def test_a_run_is_told_about_with_its_state(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient, worker: HandWorker
) -> None:
    run_id = await a_run(api, retries=0)
    async with watching(assembly, served, f"run:{run_id}", f"job:{run_id}") as watcher:
        assert await watcher.told(f"run:{run_id}") == {"topic": f"run:{run_id}", "status": "QUEUED", "attempt": 0}
        [order] = await worker.claim()
        await worker.exchange(started=[(order.run_id, order.fence, 1000)])
        await watcher.shown(f"run:{run_id}", status="RUNNING", attempt=1)
        await worker.exchange(progress=[Progress(order.run_id, order.fence, 1, 0.5)])
        await watcher.shown(f"run:{run_id}", progress=0.5)
        await worker.report(outcome(order, "FAILED", error="no"))
        await watcher.shown(f"run:{run_id}", status="FAILED")
        await watcher.shown(f"job:{run_id}", status="FAILED")
    async with watching(assembly, served, f"run:{run_id}") as late:
        await late.shown(f"run:{run_id}", status="FAILED")


async def test_a_job_is_told_about_when_it_or_its_runs_change(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient, worker: HandWorker
) -> None:
    await api.post("/v1/jobs", json=NIGHTLY)
    async with watching(assembly, served, "job:nightly") as watcher:
        assert await watcher.told("job:nightly") == {"topic": "job:nightly", "version": 1}
        await api.post("/v1/jobs/nightly:pause")
        await watcher.shown("job:nightly", version=2)
        await api.post("/v1/jobs/nightly:runNow")
        await watcher.told("job:nightly")
        [order] = await worker.claim()
        await worker.exchange(started=[(order.run_id, order.fence, 1000)])
        await watcher.told("job:nightly")
        await worker.report(outcome(order))
        await watcher.told("job:nightly")
        for _ in range(3):
            await assembly.services.streams.run_once()
        assert len(watcher.of("job:nightly")) == 5


async def test_a_workflow_run_is_told_about_with_its_steps(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient, worker: HandWorker
) -> None:
    steps = [{"name": "load", "task": "noop"}, {"name": "send", "task": "noop", "depends_on": ["load"]}]
    await api.post("/v1/workflows", json={"workflow_id": "w", "steps": steps})
    run_id = (await api.post("/v1/workflows/w:runNow")).json()["run_id"]
    topic = f"workflow-run:{run_id}"
    tasks = {task.name: task for task in assembly.periodic_tasks}

    async def work() -> None:
        for task in ("flow_starter", "fanout_expander", "join_counter"):
            await tasks[task].run_once()

    async with watching(assembly, served, topic) as watcher:
        await watcher.told(topic)
        await watcher.shown(topic, work, steps={"QUEUED": 1, "WAITING": 1})
        [order] = await worker.claim()
        await worker.report(outcome(order))
        await watcher.shown(topic, work, steps={"QUEUED": 1, "SUCCESS": 1})
        [order] = await worker.claim()
        await worker.report(outcome(order))
        await watcher.shown(topic, work, status="SUCCESS")


async def test_workers_are_told_about_when_they_come_and_go(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient, worker: HandWorker
) -> None:
    async with watching(assembly, served, "workers") as watcher:
        await assembly.services.streams.run_once()
        await worker.hello()
        await watcher.told("workers")
        await api.post(f"/v1/workers/{worker.worker_id}:drain", json={})
        await watcher.told("workers")
        await worker.exchange(stopped=True)
        await watcher.told("workers")
        assert len(watcher.of("workers")) == 3


async def test_another_tenant_is_told_nothing(
    assembly: Assembly, served: httpx.AsyncClient, tenants: Tenants, worker: HandWorker
) -> None:
    await tenants.add("b")
    own = str(tenants.clients["b"].headers["Authorization"]).partition(" ")[2]
    run_id = await a_run(tenants.operator)
    topics = ["jobs", "runs", "queues", "workers", f"run:{run_id}", f"job:{run_id}", "job:nightly"]
    client = httpx.AsyncClient(base_url=served.base_url, headers={"Authorization": f"Bearer {own}"})
    async with client, watching(assembly, client, *topics) as stranger, watching(assembly, served, *topics) as watcher:
        await tenants.operator.post("/v1/jobs", json=NIGHTLY)
        [order] = await worker.claim()
        await worker.report(outcome(order))
        await watcher.shown(f"run:{run_id}", status="SUCCESS")
        await assembly.services.streams.run_once()
        assert stranger.names == ["open"]
        await tenants.submit("b")
        await stranger.told("runs")


async def test_runs_of_shared_workers_are_told_to_their_tenants(
    assembly: Assembly, served: httpx.AsyncClient, tenants: Tenants
) -> None:
    await tenants.add("b")
    shared = await tenants.shared_worker()
    await tenants.submit("b")
    [order] = await shared.claim()
    own = str(tenants.clients["b"].headers["Authorization"]).partition(" ")[2]
    client = httpx.AsyncClient(base_url=served.base_url, headers={"Authorization": f"Bearer {own}"})
    async with client, watching(assembly, client, "runs") as watcher, watching(assembly, served, "runs") as operator:
        await shared.report(outcome(order))
        assert (await watcher.told("runs"))["changes"] == 1
        assert operator.of("runs") == []


async def test_bad_topics_are_refused(api: httpx.AsyncClient) -> None:
    for topics in (
        "",
        "everything",
        "runs,",
        "run:x",
        "job:",
        "workflow-run:7",
        ",".join(f"job:{n}" for n in range(17)),
    ):
        answer = await api.get("/v1/stream", params={"topics": topics})
        assert answer.status_code == 422, topics
        assert problem(answer)["field"] == "topics"
    assert (await api.get("/v1/stream")).status_code == 422
    head = await api.head("/v1/stream?topics=runs")
    assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")


async def test_a_quiet_stream_says_that_it_lives(assembly: Assembly, served: httpx.AsyncClient) -> None:
    assembly.services.streams.beat = 0.001
    async with watching(assembly, served, "runs") as watcher:
        await until(lambda: watcher.comments > 2)


@pytest.mark.parametrize("role", ["admin", "viewer"])
async def test_a_token_that_is_revoked_ends_its_streams_at_once(
    assembly: Assembly, served: httpx.AsyncClient, tenants: Tenants, role: str
) -> None:
    made = await tenants.token(role=role)
    client = httpx.AsyncClient(base_url=served.base_url, headers={"Authorization": f"Bearer {made['token']}"})
    async with client, watching(assembly, client, "runs") as watcher, watching(assembly, served, "runs") as other:
        await tenants.operator.post(f"/v1/tokens/{made['token_id']}:revoke")
        await until(lambda: watcher.ended)
        assert watcher.events[-1][1:] == ("end", {"reason": "signed_out"})
        assert (await client.get("/v1/stream?topics=runs")).status_code == 401
        assert not other.ended
    await until(lambda: len(assembly.services.streams) == 0)


async def test_a_session_that_is_signed_out_ends_its_stream(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient
) -> None:
    async with httpx.AsyncClient(base_url=served.base_url) as browser:
        own = {"Origin": str(served.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        code = (await api.post("/v1/session/links")).json()["code"]
        signed_in = await browser.post("/v1/session", json={"code": code}, headers=own)
        async with watching(assembly, browser, "runs") as watcher:
            csrf = {**own, "Mainspring-CSRF": signed_in.json()["csrf"]}
            assert (await browser.delete("/v1/session", headers=csrf)).status_code == 200
            await until(lambda: watcher.ended)
        assert watcher.events[-1][1:] == ("end", {"reason": "signed_out"})


async def test_there_are_only_so_many_streams(assembly: Assembly, served: httpx.AsyncClient, tenants: Tenants) -> None:
    assembly.services.streams.quota.most, assembly.services.streams.quota.of_caller = 2, 1
    tokens = [(await tenants.token(role="viewer"))["token"] for _ in range(2)]
    async with watching(assembly, served, "runs"):
        refused = await served.get("/v1/stream?topics=runs")
        assert (refused.status_code, problem(refused)["code"]) == (429, "too_many_streams")
        assert refused.headers["retry-after"] == "10"
        clients = [
            httpx.AsyncClient(base_url=served.base_url, headers={"Authorization": f"Bearer {token}"})
            for token in tokens
        ]
        async with clients[0], clients[1], watching(assembly, clients[0], "runs"):
            refused = await clients[1].get("/v1/stream?topics=runs")
            assert (refused.status_code, problem(refused)["code"]) == (503, "streams_full")
            assert refused.headers["retry-after"] == "10"
    await until(lambda: len(assembly.services.streams) == 0)
    async with watching(assembly, served, "runs"):
        assert "mainspring_streams 1.0" in (await served.get("/metrics")).text


async def test_a_tenant_that_has_all_places_gives_one_up_for_another(
    assembly: Assembly, served: httpx.AsyncClient, tenants: Tenants
) -> None:
    assembly.services.streams.quota.most = 3
    [other] = await tenants.add("other")
    headers = {"Authorization": other.headers["Authorization"]}
    async with (
        httpx.AsyncClient(base_url=served.base_url, headers=headers) as client,
        watching(assembly, served, "runs") as first,
        watching(assembly, served, "runs") as second,
        watching(assembly, served, "runs") as newest,
        watching(assembly, client, "runs"),
    ):
        await until(lambda: newest.ended)
        assert newest.events[-1][1:] == ("end", {"reason": "full"})
        assert not first.ended and not second.ended
        refused = await client.get("/v1/stream?topics=runs")  # two of three are no more than its share
        assert (refused.status_code, problem(refused)["code"]) == (503, "streams_full")


async def test_what_one_tenant_watches_does_not_make_others_late(
    assembly: Assembly,
    served: httpx.AsyncClient,
    api: httpx.AsyncClient,
    tenants: Tenants,
    connection: asyncpg.Connection,
) -> None:
    [other] = await tenants.add("other")
    headers = {"Authorization": other.headers["Authorization"]}
    run_id = await a_run(api, retries=0)
    async with (
        httpx.AsyncClient(base_url=served.base_url, headers=headers) as client,
        connection.transaction(),
    ):
        await connection.execute("lock table mainspring.step_ends in access exclusive mode")  # a look takes for ever
        async with (
            watching(assembly, client, f"workflow-run:{uuid7()}"),
            watching(assembly, served, f"run:{run_id}") as watcher,
        ):
            await watcher.shown(f"run:{run_id}", status="QUEUED")
            assert (await api.post(f"/v1/runs/{run_id}:cancel")).status_code in (200, 202)
            await watcher.shown(f"run:{run_id}", status="CANCELLED")


async def test_a_tenant_whose_look_is_slow_is_looked_at_by_itself(
    assembly: Assembly,
    served: httpx.AsyncClient,
    api: httpx.AsyncClient,
    tenants: Tenants,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [other] = await tenants.add("other")
    headers = {"Authorization": other.headers["Authorization"]}
    look, released = watched_objects.runs, asyncio.Event()

    async def slow(connection: Any, wanted: Any) -> Any:
        if any(tenant != DEFAULT_TENANT for tenant, _ in wanted):
            await released.wait()
        return await look(connection, wanted)

    monkeypatch.setattr(watched_objects, "runs", slow)
    run_id = await a_run(api, retries=0)
    async with (
        httpx.AsyncClient(base_url=served.base_url, headers=headers) as client,
        watching(assembly, served, f"run:{run_id}") as watcher,
    ):
        await watcher.shown(f"run:{run_id}", status="QUEUED")
        async with watching(assembly, client, f"run:{uuid7()}"):
            await assembly.services.streams.run_once()
            assert (await api.post(f"/v1/runs/{run_id}:cancel")).status_code in (200, 202)
            await watcher.shown(f"run:{run_id}", status="CANCELLED")
        released.set()


async def test_a_server_that_stops_ends_its_streams(assembly: Assembly) -> None:
    async with on_a_socket(assembly, watching=False) as client, watching(assembly, client, "runs") as watcher:
        assembly.release_waiters()
        await until(lambda: watcher.ended)
        assert watcher.events[-1][1:] == ("end", {"reason": "server_stops"})
        assert (await client.get("/v1/stream?topics=runs")).status_code == 503
    await until(lambda: len(assembly.services.streams) == 0)


async def test_a_stream_keeps_at_most_one_event_for_each_topic(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient
) -> None:
    async with watching(assembly, served, "runs") as watcher:
        [stream] = assembly.services.streams._open
        for _ in range(1000):
            stream.publish(live.Change("runs", changes=2))
        assert len(stream._pending) == 1
        await asyncio.sleep(0)
        await until(lambda: watcher.counted("runs") == 2000)


async def test_a_client_that_does_not_read_is_dropped(assembly: Assembly) -> None:
    async with an_edge(assembly) as edge:
        stuck, other = await edge.connect(receive_buffer=4096), await edge.connect()
        for client in (stuck, other):
            client.send(f"GET /v1/stream?topics=runs HTTP/1.1\r\n{HEAD}\r\n")
            await client.reader.readuntil(b"event: open")
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]

        async def is_dropped() -> bool:
            for stream in assembly.services.streams._open:
                stream.publish(live.Change("runs", changes=1))
            await other.reader.readuntil(b"event: change")
            return not edge.serves(stuck)

        await until(is_dropped)
        assert edge.serves(other)
        await until(lambda: len(assembly.services.streams) == 1)


async def test_a_claim_and_a_report_have_no_further_statement(
    assembly: Assembly, served: httpx.AsyncClient, api: httpx.AsyncClient, worker: HandWorker
) -> None:
    asked: list[str] = []

    def note(record: Any) -> None:
        asked.append(record.query)

    async def statements() -> Counter[str]:
        await a_run(api)
        for connection in assembly.store.connections:
            connection.add_query_logger(note)
        asked.clear()
        [order] = await worker.claim()
        await worker.report(outcome(order))
        return Counter(text for text in asked if "mainspring.tokens" not in text and "beats" not in text)

    await statements()  # the worker says hello, and connections are opened
    before = await statements()
    async with watching(assembly, served, "runs", "queues", "workers"):
        during = await statements()
    assert before == during
    assert any("mainspring.run_history" in text for text in before)


async def test_nothing_is_counted_while_nobody_watches(assembly: Assembly, api: httpx.AsyncClient) -> None:
    changes = assembly.services.streams.changes
    await a_run(api)
    assert not changes.wanted
    assert await changes.take() == {}
