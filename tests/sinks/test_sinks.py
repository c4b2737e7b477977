"""Changes of jobs and runs are sent to sinks: all that a sink wants, in order, at least once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.operations.sinks.keeper import SinkKeeper
from mainspring.operations.sinks.sender import LEASE, SinkSender
from mainspring.roles.assembly import Assembly
from tests.operations.hand_worker import HandWorker, outcome
from tests.worker.http_service import HttpService, Writer, a_service, answer

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def without_sinks(connection: asyncpg.Connection, assembly: Assembly) -> AsyncIterator[None]:
    """The module shares a database: what a test leaves is removed."""
    yield
    await connection.execute("delete from mainspring.sinks")
    await SinkKeeper(assembly.store).run_once()


async def a_sink(api: httpx.AsyncClient, receiver: HttpService, name: str = "out", **more: Any) -> dict[str, Any]:
    body = {"kind": "webhook", "url": receiver.url(f"/{name}"), "secret": "s", **more}
    answered = await api.put(f"/v1/sinks/{name}", json=body)
    assert answered.status_code in (200, 201), answered.text
    found: dict[str, Any] = answered.json()
    return found


async def sent(assembly: Assembly) -> None:
    sender = assembly.services.sink_sender
    await sender.run_once()
    await sender.settle()


def events_of(receiver: HttpService) -> list[dict[str, Any]]:
    found = []
    for asked in receiver.asked:
        body = json.loads(asked.body)
        found += body if isinstance(body, list) else [body]
    return found


def types(receiver: HttpService) -> list[str]:
    return [event["type"].removeprefix("mainspring.") for event in events_of(receiver)]


async def shown(api: httpx.AsyncClient, name: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = (await api.get(f"/v1/sinks/{name}")).json()
    return found


async def test_every_change_of_a_run_is_told_in_order(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker = HandWorker(api)
    async with a_service(answer(200)) as receiver:
        await a_sink(api, receiver)
        job = {"task": "noop", "job_id": "a", "labels": {"team": "bi"}, "retry": {"max_attempts": 2, "base": 0}}
        assert (await api.post("/v1/jobs", json=job)).status_code == 201
        [order] = await worker.claim()
        await worker.report(outcome(order, "FAILED", error="boom", retry=True))
        [order] = await worker.claim()
        await worker.report(outcome(order))
        await sent(assembly)
        assert types(receiver) == [
            "run.created", "run.started", "run.requeued", "run.started", "run.succeeded",
        ]  # fmt: skip
        created, _, again, _, ended = events_of(receiver)
        [first, *_] = receiver.asked
        assert created["source"] == "/mainspring/default"
        assert created["partitionkey"] == "a"
        assert created["data"]["labels"] == {"team": "bi"}
        assert again["data"]["error"] == "boom"
        assert (ended["data"]["status"], ended["data"]["attempt"]) == ("SUCCESS", 2)
        assert first.headers["content-type"].startswith("application/cloudevents+json")
        signed = f"{created['id']}.{first.headers['webhook-timestamp']}.".encode() + first.body
        digest = base64.b64encode(hmac.new(b"s", signed, hashlib.sha256).digest()).decode()
        assert first.headers["webhook-signature"] == f"v1,{digest}"
        view = await shown(api)
        assert (view["sent"], view["waiting"], view["dropped"]) == (5, 0, 0)


async def test_changes_of_jobs_are_told(api: httpx.AsyncClient, assembly: Assembly) -> None:
    async with a_service(answer(200)) as receiver:
        await a_sink(api, receiver, batch=100, on=["job"])
        await api.post("/v1/jobs", json={"task": "noop", "job_id": "r", "schedule": "0 9 * * *"})
        await api.post("/v1/jobs/r:pause")
        await api.post("/v1/jobs/r:resume")
        await api.patch("/v1/jobs/r", json={"payload": {"a": 1}})
        await api.delete("/v1/jobs/r")
        await sent(assembly)
        assert types(receiver) == ["job.created", "job.paused", "job.resumed", "job.changed", "job.cancelled"]
        assert len(receiver.asked) == 1


async def test_a_sink_gets_what_it_wants(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    wanted: dict[str, dict[str, Any]] = {
        "queue": {"queue": "q"}, "task": {"task": "t"}, "job": {"job": "x"}, "labels": {"labels": {"a": "1"}},
        "created": {"on": ["job.created"]}, "runs": {"on": ["run"]}, "none": {"queue": "q", "task": "other"},
    }  # fmt: skip
    async with a_service(answer(200)) as receiver:
        for name, filters in wanted.items():
            await a_sink(api, receiver, name, **filters)
        for job in ({"task": "t", "queue": "q", "job_id": "x", "labels": {"a": "1"}}, {"task": "u", "job_id": "y"}):
            assert (await api.post("/v1/jobs", json={**job, "schedule": "manual"})).status_code == 201
            assert (await api.post(f"/v1/jobs/{job['job_id']}:run-now")).status_code in (200, 201, 202)
        rows = await connection.fetch(
            "select s.name, array_agg(c.change || ' ' || c.job_id order by c.seq) from mainspring.sink_changes c "
            "join mainspring.sinks s using (sink_id) group by 1"
        )
        both = ["job.created x", "run.created x"]
        assert dict(rows) == {
            **dict.fromkeys(("queue", "task", "job", "labels"), both), "created": ["job.created x", "job.created y"],
            "runs": ["run.created x", "run.created y"],
        }  # fmt: skip


async def test_a_late_commit_is_neither_lost_nor_passed(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """A transaction that took its number first commits last: who reads by number alone never sees it."""
    async with a_service(answer(200)) as receiver:
        await api.post("/v1/jobs", json={"task": "noop"})  # so that there is a lane
        await a_sink(api, receiver, on=["run.created"])
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("""select mainspring.submit('{"task": "noop", "job_id": "early"}')""")
        await connection.execute("set constraints all immediate")  # the run is stored, with its number
        await api.post("/v1/jobs", json={"task": "noop", "job_id": "late"})
        await sent(assembly)
        assert types(receiver) == []
        await transaction.commit()
        await sent(assembly)
        assert [event["data"]["job_id"] for event in events_of(receiver)] == ["early", "late"]


async def test_a_receiver_that_is_down_gets_everything_later(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    async with a_service(answer(503), answer(200)) as receiver, a_service(answer(200)) as other:
        await a_sink(api, receiver, on=["run.created"])
        await a_sink(api, other, "fine", on=["run.created"])
        for job in ("a", "b"):
            await api.post("/v1/jobs", json={"task": "noop", "job_id": job})
        await sent(assembly)
        assert len(types(other)) == 2
        view = await shown(api)
        assert (view["waiting"], view["failures"], view["error"]) == (2, 1, "HTTP 503")
        assert view["lag_s"] > 0
        metrics = (await api.get("/metrics", params={"gauges": "yes"})).text
        assert 'mainspring_sink_waiting{sink="out"} 2.0' in metrics
        assert 'mainspring_sink_lag_seconds{sink="fine"} 0.0' in metrics
        later = (
            "update mainspring.sink_positions set retry_at = retry_at + interval '1 hour' where retry_at is not null"
        )
        await connection.execute(later)
        await sent(assembly)
        assert len(receiver.asked) == 1  # it is not due
        await connection.execute("update mainspring.sink_positions set retry_at = null")
        await sent(assembly)
        assert [event["data"]["job_id"] for event in events_of(receiver)] == ["a", "a", "b"]
        assert len({event["id"] for event in events_of(receiver)}) == 2
        assert (await shown(api))["failures"] == 0


async def test_another_server_takes_over_from_one_that_renews_nothing(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """A lease lasts for less than a batch may take. While the server lives it stays with it, and then ends soon."""
    first, late, clock = assembly.services.sink_sender, asyncio.Event(), ManualClock()
    first._clock = clock
    second = SinkSender(assembly.store, clock, first._producers)
    over = "update mainspring.sink_positions set leased_until = clock_timestamp() - interval '1 s' returning epoch"

    async def wait(writer: Writer) -> None:
        await late.wait()
        writer.write(answer(200))

    async with a_service(wait, answer(200)) as receiver:
        await a_sink(api, receiver, on=["run.created"])
        await api.post("/v1/jobs", json={"task": "noop", "job_id": "a"})
        assert await first.run_once() == 1
        while not receiver.asked:
            await asyncio.sleep(0.01)
        await connection.execute(over)
        clock.advance(LEASE / 2)
        assert await first.run_once() == 0  # it sends, and renews
        assert await second.run_once() == 0
        await connection.execute(over)
        assert await second.run_once() == 1
        await second.settle()
        assert (await shown(api))["waiting"] == 0
        clock.advance(LEASE / 2)
        assert await first.run_once() == 0  # what another one has taken over stays there
        late.set()
        await first.settle()
        await second.close()
    assert len(receiver.asked) == 2 and len({event["id"] for event in events_of(receiver)}) == 1
    assert await connection.fetchval("select holder from mainspring.sink_positions") == second._holder


async def test_what_waits_is_bounded_and_the_mark_is_shown(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    keeper = SinkKeeper(assembly.store)
    async with a_service(answer(200)) as receiver:
        await a_sink(api, receiver, on=["run.created"], keep="1h")
        await api.post("/v1/sinks/out:pause")
        for job in ("old", "new"):
            await api.post("/v1/jobs", json={"task": "noop", "job_id": job})
        await connection.execute("update mainspring.sink_changes set at = at - interval '2 hours' where job_id = 'old'")
        assert await keeper.run_once() == 1
        view = await shown(api)
        assert (view["dropped"], view["waiting"], view["paused"]) == (1, 1, True)
        await api.post("/v1/sinks/out:resume")
        overview = (await api.get("/v1/insights/overview")).json()
        assert any("1 change was dropped for the sink out" in text for text in overview["warnings"])
        await sent(assembly)
        assert [event["data"]["job_id"] for event in events_of(receiver)] == ["new"]


async def test_the_triggers_exist_only_while_there_is_a_sink(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    keeper, count = SinkKeeper(assembly.store), "select count(*) from pg_trigger where tgname like 'note\\_%'"
    assert await connection.fetchval(count) == 0
    async with a_service(answer(200)) as receiver:
        await a_sink(api, receiver)
        assert await connection.fetchval(count) == 6
        await connection.execute("drop trigger note_new_runs on mainspring.runs")  # as in a database that was restored
        await keeper.run_once()
        assert await connection.fetchval(count) == 6
        await api.post("/v1/jobs", json={"task": "noop"})
        await api.delete("/v1/sinks/out")
        await keeper.run_once()
        assert await connection.fetchval(count) == 0
        assert await connection.fetchval("select count(*) from mainspring.sink_changes") == 0


async def test_a_secret_is_not_shown_and_not_sent_elsewhere(api: httpx.AsyncClient) -> None:
    async with a_service(answer(200)) as receiver:
        view = await a_sink(api, receiver)
        assert view["secrets"] == ["secret"]
        assert '"s"' not in json.dumps(view)
        same = {"kind": "webhook", "url": receiver.url("/out"), "on": ["job"]}
        assert (await api.put("/v1/sinks/out", json=same)).status_code == 200
        moved = await api.put("/v1/sinks/out", json={**same, "url": "https://example.com/"})
        assert (moved.status_code, moved.json()["field"]) == (422, "secret")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "fax", "url": "https://a.example"}, "kind"),
        ({"kind": "webhook", "url": "ftp://a.example", "secret": "s"}, "url"),
        ({"kind": "webhook", "url": "https://a.example", "secret": "s", "batch": 0}, "batch"),
        ({"kind": "webhook", "url": "https://a.example", "secret": "s", "topic": "t"}, "topic"),
        ({"kind": "nats", "url": "nats://u:p@a.example", "topic": "t"}, "url"),
        ({"kind": "nats", "url": "nats://a.example", "topic": "a.*"}, "topic"),
        ({"kind": "redis", "url": "redis://a.example/x", "topic": "t"}, "url"),
        ({"kind": "rabbitmq", "url": "amqp://a.example", "topic": "t", "user": "u"}, "password"),
        ({"kind": "webhook", "url": "https://a.example", "secret": "s", "on": ["run.gone"]}, "on[0]"),
        ({"kind": "webhook", "url": "https://a.example", "secret": "s", "keep_size": 5}, "keep_size"),
    ],
)  # fmt: skip
async def test_bad_input_names_the_field(api: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    answered = await api.put("/v1/sinks/out", json=body)
    assert (answered.status_code, answered.json()["field"]) == (422, field)
    assert "u:p@" not in answered.text
    assert (await api.get("/v1/sinks/out")).status_code == 404


async def test_a_test_event_says_what_became_of_it(api: httpx.AsyncClient) -> None:
    async with a_service(answer(200), answer(500)) as receiver:
        await a_sink(api, receiver)
        assert (await api.post("/v1/sinks/out:test")).json()["sent"] is True
        assert types(receiver) == ["sink.test"]
        failed = (await api.post("/v1/sinks/out:test")).json()
        assert (failed["sent"], failed["error"]) == (False, "HTTP 500")
        private = {"kind": "webhook", "url": "http://10.1.2.3/", "secret": "s"}
        await api.put("/v1/sinks/private", json=private)
        assert "--notify-allow" in (await api.post("/v1/sinks/private:test")).json()["error"]
