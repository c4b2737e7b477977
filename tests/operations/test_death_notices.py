"""Death notices: proved by the secret, settled after a report in flight, safe to repeat, and final."""

from __future__ import annotations

import asyncio
import io
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from mainspring.kernel import logs, metrics
from mainspring.kernel.ids import uuid7
from mainspring.operations.exchange import patience, transaction, worker_registry
from mainspring.roles.assembly import Assembly
from mainspring.store.pool import Store
from mainspring.store.workers import WorkerState, hash_secret
from mainspring.wire.exchange import RunOrder
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER
from tests.eventually import PATIENCE
from tests.logs.scene import chunk, ship
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.servers import another_server
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

SECRET = "5e" * 32


class Scene:
    """A worker with a secret."""

    def __init__(self, api: httpx.AsyncClient) -> None:
        self.api = api
        self.worker = HandWorker(api)
        self.worker.secret = SECRET

    async def holds(self, count: int = 1, **fields: Any) -> list[RunOrder]:
        for _ in range(count):
            answer = await self.api.post("/v1/jobs", json={"task": "noop", **fields})
            assert answer.status_code == 201, answer.text
        return await self.worker.claim(count)

    async def notice(
        self, api: httpx.AsyncClient | None = None, *, secret: str = SECRET, proves: UUID | None = None, **fields: Any
    ) -> httpx.Response:
        """`proves`: the worker that the proof is about, if it is another one."""
        body = {"worker_id": str(self.worker.worker_id), **fields}
        return await self.send(body, str(proves or body["worker_id"]), secret, api)

    async def send(
        self, body: dict[str, Any], worker: str, secret: str = SECRET, api: httpx.AsyncClient | None = None
    ) -> httpx.Response:
        """Without a token."""
        proof = {WORKER_HEADER: worker, SECRET_HEADER: secret}
        sent = (api or self.api).build_request("POST", "/v1/exchange/gone", json=body, headers=proof)
        del sent.headers["Authorization"]
        return await (api or self.api).send(sent)

    async def status(self, order: RunOrder) -> tuple[str, int]:
        run = (await self.api.get(f"/v1/runs/{order.run_id}")).json()
        return run["status"], run["attempt_number"]


@pytest.fixture
def scene(api: httpx.AsyncClient) -> Scene:
    return Scene(api)


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(worker_registry.log, "warning", lambda text, **_: lines.append(text), raising=False)
    return lines


def heard() -> float:
    return float(metrics.heard_after_notice._value.get())


async def worker_row(connection: asyncpg.Connection, worker_id: UUID) -> asyncpg.Record:
    return await connection.fetchrow("select * from mainspring.workers where worker_id = $1", worker_id)


async def test_a_notice_ends_the_incarnation_and_requeues_its_runs_at_once(
    scene: Scene, connection: asyncpg.Connection
) -> None:
    orders = await scene.holds(3)
    answer = await scene.notice(exit="killed by SIGKILL", started=[])
    assert (answer.status_code, answer.json()) == (200, {"rescued": 3})
    row = await worker_row(connection, scene.worker.worker_id)
    assert (row["state"], row["secret_hash"]) == (WorkerState.LOST, hash_secret(SECRET))
    assert row["ended_at"] is not None and row["notice_at"] is not None
    other = HandWorker(scene.api)
    assert {order.run_id for order in await other.claim(3)} == {order.run_id for order in orders}


async def test_more_runs_than_a_batch_are_rescued_too(scene: Scene) -> None:
    await scene.api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 1100)
    await scene.worker.claim(1100)
    assert (await scene.notice()).json() == {"rescued": 1100}


@pytest.mark.parametrize("secret", ["5f" * 32, SECRET[:-1], SECRET + "0", SECRET.upper()])
async def test_a_wrong_secret_changes_nothing(scene: Scene, connection: asyncpg.Connection, secret: str) -> None:
    (order,) = await scene.holds()
    before = await worker_row(connection, scene.worker.worker_id)
    answer = await scene.notice(secret=secret)
    assert (answer.status_code, answer.json()["code"]) == (401, "wrong_secret")
    assert await worker_row(connection, scene.worker.worker_id) == before
    await scene.worker.report(outcome(order))


async def test_a_wrong_secret_does_not_wait_for_a_lock(scene: Scene, connection: asyncpg.Connection) -> None:
    await scene.holds()
    async with connection.transaction():
        await connection.execute("select from mainspring.workers for update")
        async with asyncio.timeout(PATIENCE):
            assert (await scene.notice(secret="wrong")).status_code == 401


async def test_a_worker_without_a_secret_cannot_be_given_notice_of(scene: Scene) -> None:
    scene.worker.secret = ""
    await scene.holds()
    for secret in (SECRET, "None", "\\x", "", "x" * 1000):
        assert (await scene.notice(secret=secret)).status_code == 401


async def test_an_unknown_worker_is_answered_like_a_wrong_secret(scene: Scene) -> None:
    assert (await scene.notice(worker_id=str(uuid7()))).json()["code"] == "wrong_secret"


@pytest.mark.parametrize(
    "body",
    [{"worker_id": 1}, {"secret": 1}, {"started": [["x", 1]]}, {"started": {}}, {"exit": "x" * 1000}, {"other": 1}],
)
async def test_a_malformed_notice_is_refused(scene: Scene, body: dict[str, Any]) -> None:
    await scene.worker.hello()
    worker = str(scene.worker.worker_id)
    assert (await scene.send({"worker_id": worker, **body}, worker)).status_code == 422


async def test_a_notice_is_about_the_worker_of_its_proof(scene: Scene, connection: asyncpg.Connection) -> None:
    await scene.worker.hello()
    other = HandWorker(scene.api)
    await other.hello()
    before = await worker_row(connection, other.worker_id)
    answer = await scene.notice(proves=scene.worker.worker_id, worker_id=str(other.worker_id))
    assert (answer.status_code, answer.json()["field"]) == (422, "worker_id")
    assert await worker_row(connection, other.worker_id) == before


async def test_the_secret_in_the_body_proves_nothing(scene: Scene, connection: asyncpg.Connection) -> None:
    await scene.worker.hello()
    body = {"worker_id": str(scene.worker.worker_id), "secret": SECRET}
    answer = await scene.api.post("/v1/exchange/gone", json=body)
    assert (answer.status_code, answer.json()["code"]) == (401, "wrong_secret")
    assert (await worker_row(connection, scene.worker.worker_id))["notice_at"] is None


async def test_the_first_secret_of_an_incarnation_stays(scene: Scene) -> None:
    await scene.worker.hello()
    scene.worker.secret = "another"
    assert (await scene.worker.ask(hello=scene.worker.card)).status_code == 403
    assert (await scene.notice(secret="another")).status_code == 401
    assert (await scene.notice()).status_code == 200


async def test_a_hello_without_a_secret_may_be_completed_later(scene: Scene) -> None:
    """The first hello may have gone to a server that does not know secrets."""
    scene.worker.secret = ""
    await scene.worker.hello()
    scene.worker.secret = SECRET
    await scene.worker.hello()
    assert (await scene.notice()).status_code == 200


async def test_a_notice_may_be_repeated_also_at_another_server(
    scene: Scene, connection: asyncpg.Connection, database_url: str
) -> None:
    (order,) = await scene.holds()
    assert (await scene.notice()).json() == {"rescued": 1}
    before = await worker_row(connection, scene.worker.worker_id)
    other = HandWorker(scene.api)
    (again,) = await other.claim()
    async with another_server(database_url) as second:
        for api in (scene.api, second):
            answer = await scene.notice(api)
            assert (answer.status_code, answer.json()) == (200, {"rescued": 0})
    assert await worker_row(connection, scene.worker.worker_id) == before
    assert again.fence > order.fence
    await other.report(outcome(again))
    assert (await scene.status(order))[0] == "SUCCESS"


async def test_a_worker_that_has_stopped_in_order_stays_stopped(
    scene: Scene, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.worker.hello()
    await scene.worker.exchange(stopped=True)
    stopped = await worker_row(connection, scene.worker.worker_id)
    monkeypatch.setattr(logs, "_sink", logs._Sink(heard := io.StringIO(), logs._as_json, 0))
    assert (await scene.notice(exit="exit status 0")).status_code == 200
    assert "worker has ended" in heard.getvalue() and "is gone" not in heard.getvalue()
    row = await worker_row(connection, scene.worker.worker_id)
    assert (row["state"], row["ended_at"]) == (WorkerState.STOPPED, stopped["ended_at"])
    assert row["notice_at"] is not None


async def test_a_report_in_flight_is_settled_before_the_notice(
    scene: Scene, connection: asyncpg.Connection, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report has the worker's row, so the notice waits for it and finds the run ended. Usually the report waits for
    half a second, and leaves out what it cannot have. Here it waits until the test has seen that both wait."""
    monkeypatch.setattr(transaction, "_FOR_A_ROW", 300.0)
    monkeypatch.setattr(patience, "_SECONDS", 300.0)
    reported, left = await scene.holds(2)
    gate = connection.transaction()
    await gate.start()
    await connection.execute("select from mainspring.runs where run_id = $1 for update", reported.run_id)
    report = asyncio.create_task(scene.worker.ask(outcomes=[outcome(reported)]))
    await until(lambda: waits_for_lock(assembly.store, "delete from mainspring.runs"))  # it has the worker's row
    notice = asyncio.create_task(scene.notice())
    await until(lambda: waits_for_lock(assembly.store, "notice_at"))
    await gate.rollback()
    assert (await report).status_code == 200
    assert (await notice).json() == {"rescued": 1}
    assert await scene.status(reported) == ("SUCCESS", 1)
    assert (await scene.status(left))[0] == "QUEUED"


async def waits_for_lock(store: Store, words: str) -> bool:
    """Whether a statement with these words waits for a row."""
    async with store.reads.acquire() as connection:
        return bool(
            await connection.fetchval(
                "select count(*) from pg_stat_activity where datname = current_database()"
                " and wait_event_type = 'Lock' and query like '%' || $1 || '%' and pid <> pg_backend_pid()",
                words,
            )
        )


async def test_whoever_is_heard_after_its_notice_is_fenced_counted_and_logged(
    scene: Scene, warnings: list[str], database_url: str
) -> None:
    order, printing = await scene.holds(2)
    await scene.notice()
    async with another_server(database_url) as second:
        for api in (scene.api, second):
            scene.worker.api = api
            for fields in (
                {"outcomes": [outcome(order)]},
                {"free": 1},
                {"recover": True},
                {"hello": scene.worker.card},
            ):
                before = heard()
                answer = await scene.worker.ask(**fields)
                assert (answer.status_code, answer.json()["code"]) == (409, "fenced"), fields
                assert heard() == before + 1
            before = heard()
            assert (await ship(scene.worker, chunk(printing, 0, b"late"))).fenced == [printing.run_id]
            assert heard() == before + 1
    assert set(warnings) == {"refused a worker that was heard after its death notice"}
    assert len(warnings) == 10
    assert (await scene.status(order))[0] == "QUEUED"


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_long_poll_of_the_dead_worker_gets_no_runs_and_is_not_counted_as_heard(
    scene: Scene, assembly: Assembly, database_url: str, *, elsewhere: bool
) -> None:
    """The server does not know that nobody waits for its answer."""
    await scene.holds(1)
    async with another_server(database_url) as second:
        before = heard()
        poll = asyncio.create_task(scene.worker.ask(free=1, wait_ms=10_000))

        async def waits() -> bool:
            return any(exchange.waiter.demand.free for exchange in assembly.services.exchanger._active)

        await until(waits)
        assert (await scene.notice(second if elsewhere else scene.api)).json() == {"rescued": 1}
        if not elsewhere:
            assert (await poll).json().get("superseded")
        (order,) = await HandWorker(scene.api).claim()
        assert order.attempt == 2
        assembly.long_polls.close()
        await poll
        assert heard() == before
