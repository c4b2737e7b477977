"""A second worker token of the same tenant against the workers of the first. It needs only PostgreSQL.

The attacker knows everything that the API shows: the ids of workers and runs, and fences. It has no secret.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.kernel import metrics
from mainspring.kernel.ids import uuid7
from mainspring.operations.exchange import incarnation_proof
from mainspring.roles.assembly import Assembly
from mainspring.store.workers import hash_secret
from mainspring.wire.exchange import Progress, RunOrder
from tests.logs.scene import ask as ship_raw
from tests.logs.scene import chunk, ship, text
from tests.logs.test_watching import statements_of
from tests.operations.hand_worker import HandWorker, held, outcome
from tests.operations.servers import another_server
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio

SECRET = "5e" * 32


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as found:
        yield found


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(incarnation_proof.log, "warning", lambda _, **fields: lines.append(fields), raising=False)
    return lines


class Scene:
    """A worker that holds a run, and an attacker with another worker token of the tenant."""

    def __init__(self, worker: HandWorker, order: RunOrder, attacker_token: str) -> None:
        self.worker = worker
        self.order = order
        self.attacker_token = attacker_token

    def attacker(self, api: httpx.AsyncClient, *, secret: str = "") -> HandWorker:
        """It continues where the worker is."""
        attacker = HandWorker(api)
        attacker.worker_id, attacker.seq, attacker.secret = self.worker.worker_id, self.worker.seq, secret
        attacker.card.name = "attacker"
        return attacker


async def a_scene(tenants: Tenants, *, secret: str) -> tuple[Scene, httpx.AsyncClient]:
    worker_token = (await tenants.token(role="worker"))["token"]
    attacker_token = (await tenants.token(role="worker"))["token"]
    await tenants.submit("default")
    worker = HandWorker(await tenants.client(worker_token))
    worker.secret = secret
    (order,) = await worker.claim()
    return Scene(worker, order, attacker_token), await tenants.client(attacker_token)


async def state_of(connection: asyncpg.Connection, worker_id: UUID, run_id: UUID) -> list[Any]:
    return [
        await connection.fetchrow("select * from mainspring.workers where worker_id = $1", worker_id),
        await connection.fetchrow("select * from mainspring.runs where run_id = $1", run_id),
        await connection.fetch("select * from mainspring.run_logs"),
        await connection.fetchval("select count(*) from mainspring.attempts"),
    ]


async def refusals(scene: Scene, api: httpx.AsyncClient, *, secret: str = "") -> list[httpx.Response]:
    """What the answers to everything are that a worker can send."""
    attacker, order = scene.attacker(api, secret=secret), scene.order
    answers = [
        await attacker.ask(**fields)
        for fields in (
            {"outcomes": [outcome(order, result="forged")]},
            {"outcomes": [outcome(order, "RETURNED")]},
            {"recover": True, "free": 5},
            {"recover": True, "inventory": held(order)},
            {"progress": [Progress(order.run_id, order.fence, 1, 0.5, "forged")]},
            {"started": [(order.run_id, order.fence, 1.0)]},
            {"free": 5},
            {"draining": True},
            {"stopped": True},
            {},
            {"hello": attacker.card},
            {"hello": attacker.card, "outcomes": [outcome(order)]},
        )
    ]
    return [*answers, await ship_raw(attacker, chunk(order, 0, b"forged"))]


@pytest.mark.parametrize("secret", [SECRET, ""], ids=["with a secret", "of 0.2.0"])
async def test_a_second_token_of_the_tenant_cannot_speak_for_a_worker(
    tenants: Tenants, connection: asyncpg.Connection, database_url: str, secret: str, warnings: list[Any]
) -> None:
    """At the server that knows the worker, and at one that has to read its row."""
    scene, api = await a_scene(tenants, secret=secret)
    worker, order = scene.worker, scene.order
    before = await state_of(connection, worker.worker_id, order.run_id)
    counted = metrics.wrong_incarnation._value.get()
    async with another_server(database_url, token=scene.attacker_token) as elsewhere:
        answers = [
            answer
            for server in (api, elsewhere)
            for guess in ("", "5f" * 32, SECRET[:-1], "x" * 100)
            for answer in await refusals(scene, server, secret=guess)
        ]
    codes = {(answer.status_code, answer.json()["code"]) for answer in answers}
    assert codes == {(403, "wrong_incarnation")}
    assert metrics.wrong_incarnation._value.get() - counted == len(answers) == len(warnings)
    assert all(SECRET not in str(line) for line in warnings)
    assert await state_of(connection, worker.worker_id, order.run_id) == before
    await ship(worker, chunk(order, 0, b"its own"))
    await worker.report(outcome(order))
    assert await text(tenants.operator, order.run_id) == "its own"


async def test_a_hello_without_the_secret_takes_nothing_over_also_with_the_same_token(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """Several workers often share one token. The secret tells them apart."""
    worker = HandWorker(api)
    worker.secret = SECRET
    await worker.hello()
    before = await connection.fetchrow("select * from mainspring.workers")
    for secret in ("", "another"):
        twin = HandWorker(api)
        twin.worker_id, twin.secret, twin.card.labels = worker.worker_id, secret, {"zone": "forged"}
        assert (await twin.ask(hello=twin.card)).json()["code"] == "wrong_incarnation"
    assert await connection.fetchrow("select * from mainspring.workers") == before


async def test_the_worker_itself_may_use_any_server_and_any_token_of_its_tenant(
    tenants: Tenants, database_url: str
) -> None:
    scene, _ = await a_scene(tenants, secret=SECRET)
    worker = scene.worker
    async with another_server(database_url, token=scene.attacker_token) as elsewhere:
        worker.api = elsewhere
        await ship(worker, chunk(scene.order, 0, b"from here"))
        await worker.exchange(hello=worker.card)
        await worker.report(outcome(scene.order))


@pytest.mark.parametrize("secret", [SECRET, ""], ids=["with a secret", "of 0.2.0"])
async def test_a_worker_of_an_older_server_is_bound_by_its_first_request(
    tenants: Tenants, connection: asyncpg.Connection, database_url: str, secret: str
) -> None:
    """A server of 0.2.0 writes a row without secret and token."""
    scene, _ = await a_scene(tenants, secret=secret)
    await connection.execute("update mainspring.workers set secret_hash = null, token_id = null")
    async with another_server(database_url) as elsewhere:
        elsewhere.headers["Authorization"] = scene.worker.api.headers["Authorization"]
        scene.worker.api = elsewhere
        await scene.worker.exchange()
    row = await connection.fetchrow("select secret_hash, token_id from mainspring.workers")
    assert row["token_id"] is not None
    assert row["secret_hash"] == (hash_secret(secret) if secret else None)
    async with another_server(database_url, token=scene.attacker_token) as third:
        assert {answer.status_code for answer in await refusals(scene, third)} == {403}


async def test_a_worker_that_sends_its_secret_in_its_hello_only_is_bound_to_its_token(
    tenants: Tenants, connection: asyncpg.Connection, database_url: str
) -> None:
    """Early workers of protocol 2. Their secret proves nothing, because their other requests do not carry it."""
    scene, api = await a_scene(tenants, secret="")
    worker, order = scene.worker, scene.order
    worker.card.secret, worker.card.protocol = SECRET, 2
    await worker.hello()
    assert await connection.fetchval("select secret_hash from mainspring.workers") is None
    attacker = scene.attacker(api)
    attacker.card.secret = SECRET
    assert (await attacker.ask(hello=attacker.card)).json()["code"] == "wrong_incarnation"
    assert {answer.status_code for answer in await refusals(scene, api)} == {403}
    # Their servers have stored the secret and no token. The first request that a newer server hears binds the row.
    for hello in (None, worker.card):
        await connection.execute("update mainspring.workers set secret_hash = $1, token_id = null", hash_secret(SECRET))
        async with another_server(database_url) as elsewhere:
            elsewhere.headers["Authorization"] = worker.api.headers["Authorization"]
            worker.api = elsewhere
            await worker.exchange(hello=hello, inventory=held(order))
        async with another_server(database_url, token=scene.attacker_token) as third:
            assert {answer.status_code for answer in await refusals(scene, third)} == {403}
    row = await connection.fetchrow("select secret_hash, token_id from mainspring.workers")
    assert row["secret_hash"] is None and row["token_id"] is not None
    worker.api = await tenants.client(worker.api.headers["Authorization"].removeprefix("Bearer "))
    await worker.report(outcome(order))


async def test_the_proof_costs_no_statement(assembly: Assembly, api: httpx.AsyncClient) -> None:
    """Neither do refusals, once the server knows the worker."""
    worker = HandWorker(api)
    worker.secret = SECRET
    await worker.hello()
    await worker.exchange()
    with statements_of(assembly) as sent:
        await worker.exchange()
        alike = len(sent)
        worker.secret = "wrong"
        await worker.ask()
    assert len(sent) == alike


async def test_no_answer_shows_a_secret_or_its_hash(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    worker.secret = SECRET
    reply = await worker.hello()
    urls = ("/v1/workers", f"/v1/workers/{worker.worker_id}", "/v1/tokens", "/metrics", "/v1/tasks", "/v1/queues")
    shown = "".join([msgspec.json.encode(reply).decode(), *[(await api.get(url)).text for url in urls]])
    assert str(worker.worker_id) in shown
    digest = hash_secret(SECRET)
    assert not any(word in shown for word in (SECRET, digest.hex(), "secret_hash", "token_hash"))


async def test_a_secret_that_is_too_long_is_refused(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    worker.secret = "x" * 101
    answer = await worker.ask(hello=worker.card)
    assert (answer.status_code, answer.json()["field"]) == (422, "Mainspring-Worker-Secret")


async def test_a_worker_token_follows_and_reads_no_log(tenants: Tenants) -> None:
    scene, api = await a_scene(tenants, secret=SECRET)
    await ship(scene.worker, chunk(scene.order, 0, b"private"))
    for params in ({}, {"follow": "true"}):
        answer = await api.get(f"/v1/runs/{scene.order.run_id}/logs", params=params)
        assert (answer.status_code, answer.json()["code"]) == (403, "worker_token")
    assert (await api.get(f"/v1/workers/{scene.worker.worker_id}")).status_code == 403
    assert (await api.post(f"/v1/workers/{uuid7()}:drain")).status_code == 403
