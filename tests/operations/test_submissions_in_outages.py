"""A submission waits while PostgreSQL is away. It is stored once, also if its commit was not acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel import patience as budget
from mainspring.operations.submit.batch import SubmitBatch
from mainspring.roles.assembly import Assembly
from mainspring.store import channels, outage_queue, secrets
from tests.conftest import TOKEN
from tests.eventually import PATIENCE

pytestmark = pytest.mark.anyio

PLAIN = {"task": "t", "payload": {"n": 1}}
BODIES: dict[str, Any] = {
    "plain": PLAIN,
    "scheduled": {**PLAIN, "schedule": "0 3 1 1 *"},
    "one-time": {**PLAIN, "schedule": {"at": "2099-01-01T00:00:00Z"}},
    "named": {**PLAIN, "job_id": "chosen"},
    "limited": {**PLAIN, "concurrency": {"key": "payload.n", "limit": 1}},
    "keyed": {**PLAIN, "job_id": "chosen", "schedule": "0 3 1 1 *", "idempotency_key": "k"},
    "batch": {"jobs": [PLAIN, {**PLAIN, "schedule": "0 3 1 1 *"}, {**PLAIN, "name": "x"}]},
}


@pytest.fixture
async def front(assembly: Assembly) -> AsyncIterator[httpx.AsyncClient]:
    """The whole server, load shedding included."""
    transport = httpx.ASGITransport(app=assembly.front())  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as client:
        yield client


async def post(front: httpx.AsyncClient, body: Any) -> httpx.Response:
    return await front.post("/v1/jobs:batch" if "jobs" in body else "/v1/jobs", json=body)


async def stored(assembly: Assembly) -> int:
    async with assembly.store.reads.acquire() as connection:
        return await connection.fetchval(
            "select (select count(*) from mainspring.runs) + (select count(*) from mainspring.jobs)"
        )


async def turns(until: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not until():
            await asyncio.sleep(0)


def lose_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
    """The first call of a coroutine ends with a lost connection, before or after it has done its work."""
    real: Callable[..., Awaitable[Any]] = getattr(owner, name)
    calls = 0

    async def lossy(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            return await real(*args, **options)
        if after:
            await real(*args, **options)
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

    monkeypatch.setattr(owner, name, lossy)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_it_waits_and_is_stored_when_postgresql_is_back(
    assembly: Assembly, front: httpx.AsyncClient, body: Any
) -> None:
    assembly.store.outage.away = True
    posting = asyncio.create_task(post(front, body))
    await turns(lambda: len(assembly.store.waiting) == 1)
    assembly.store.outage.end()
    assert (await posting).status_code == 201
    assert await stored(assembly) == len(body.get("jobs", "1"))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_one_whose_connection_is_lost_before_the_commit_is_stored_again(
    assembly: Assembly, front: httpx.AsyncClient, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_once(monkeypatch, SubmitBatch, "insert", after=False)
    assert (await post(front, body)).status_code == 201
    assert await stored(assembly) == len(body.get("jobs", "1"))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_one_whose_commit_was_not_acknowledged_is_stored_once(
    assembly: Assembly, front: httpx.AsyncClient, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the commit the connection is lost: the answer is that of the first attempt."""
    lose_once(monkeypatch, type(assembly.services.submitter), "_store_all", after=True)
    answer = await post(front, body)
    assert answer.status_code in (200, 201), answer.text
    ids = answer.json().get("job_ids") or [answer.json()["job_id"]]
    assert await stored(assembly) == len(ids)
    for job_id in ids:
        assert (await front.get(f"/v1/jobs/{job_id}")).status_code == 200


async def test_one_with_a_chosen_id_and_no_key_is_in_doubt_and_says_so(
    assembly: Assembly, front: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing shows whether the job with this id is that of the request. The client decides."""
    lose_once(monkeypatch, type(assembly.services.submitter), "_store_all", after=True)
    answer = await post(front, {**PLAIN, "job_id": "chosen", "schedule": "0 3 1 1 *"})
    assert (answer.status_code, answer.json()["code"]) == (503, "store_down")
    assert await stored(assembly) == 1


async def test_they_continue_oldest_first(assembly: Assembly, front: httpx.AsyncClient) -> None:
    assembly.store.outage.away = True
    posting = []
    for number in range(5):
        posting.append(asyncio.create_task(post(front, {"task": "t", "payload": {"n": number}})))
        await turns(lambda: len(assembly.store.waiting) == len(posting))
    assembly.store.outage.end()
    ids = [(await one).json()["job_id"] for one in posting]
    assert ids == sorted(ids)


async def test_its_time_is_bounded(
    assembly: Assembly, front: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.api.load_shedding.OUTAGE_BUDGET", 0.05)
    assembly.store.outage.away = True
    answer = await post(front, PLAIN)
    assert (answer.status_code, answer.json()["code"]) == (503, "store_down") and "retry-after" in answer.headers
    assert len(assembly.store.waiting) == 0 and assembly.store.waiting._all.bytes == 0
    assembly.store.outage.end()
    assert await stored(assembly) == 0 and budget.OUTAGE_BUDGET == 15.0


@pytest.mark.parametrize("bound", ["MOST_WAITING", "MOST_BYTES"])
async def test_their_number_and_their_bytes_are_bounded(
    assembly: Assembly, front: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(outage_queue, bound, 1 if bound == "MOST_WAITING" else 100)
    assert (await front.get("/v1/jobs")).status_code == 200  # a token that the server has not seen has less room
    assembly.store.outage.away = True
    first = asyncio.create_task(post(front, PLAIN))
    await turns(lambda: len(assembly.store.waiting) == 1)
    refused = await post(front, {"task": "t", "payload": {"n": "x" * 100}})
    assert (refused.status_code, refused.json()["code"]) == (503, "store_down")
    assembly.store.outage.end()
    assert (await first).status_code == 201


async def test_whoever_has_waited_for_too_long_takes_no_place(
    assembly: Assembly, front: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an outage that is longer than a submission waits, the next ones can wait."""
    monkeypatch.setattr(outage_queue, "MOST_WAITING", 1)
    assembly.store.outage.away = True
    with monkeypatch.context() as patch:
        patch.setattr("mainspring.api.load_shedding.OUTAGE_BUDGET", 0.05)
        assert (await post(front, PLAIN)).status_code == 503
    assert len(assembly.store.waiting) == 0
    posting = asyncio.create_task(post(front, PLAIN))
    await turns(lambda: len(assembly.store.waiting) == 1)
    assembly.store.outage.end()
    assert (await posting).status_code == 201


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic eA=="}, {"Cookie": "a=b"}])
async def test_a_client_without_a_token_does_not_wait(
    assembly: Assembly, front: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    assembly.store.outage.away = True
    del front.headers["Authorization"]
    refused = await front.post("/v1/jobs", json=PLAIN, headers=headers)
    assert (refused.status_code, len(assembly.store.waiting)) == (401, 0), refused.text


async def test_tokens_that_the_server_has_not_seen_take_a_part_of_the_places(
    assembly: Assembly, front: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they are valid shows when PostgreSQL is back. They leave room for the others, in number and in bytes."""
    monkeypatch.setattr(outage_queue, "MOST_WAITING", 4)
    assert (await front.get("/v1/jobs")).status_code == 200  # from now on its token is known
    assembly.store.outage.away = True
    made_up = {"Authorization": "Bearer made-up"}
    large = {**made_up, "Content-Length": str(60 * 1024 * 1024), "Content-Type": "application/json"}
    assert (await front.post("/v1/jobs:batch", content=b"{}", headers=large)).status_code == 503
    stranger = asyncio.create_task(front.post("/v1/jobs", json=PLAIN, headers=made_up))
    await turns(lambda: len(assembly.store.waiting) == 1)
    assert (await front.post("/v1/jobs", json=PLAIN, headers=made_up)).status_code == 503
    posting = [asyncio.create_task(post(front, PLAIN)) for _ in range(3)]
    await turns(lambda: len(assembly.store.waiting) == 4)
    assembly.store.outage.end()
    assert [(await one).status_code for one in posting] == [201] * 3
    assert (await stranger).status_code == 401
    assert await stored(assembly) == 3


CHECKED: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "a secret": (secrets, "scopes", {"task": "t", "secrets": ["db-password"]}),
    "a channel": (channels, "names", {**PLAIN, "notify": [{"on": ["failure"], "to": ["oncall"]}]}),
}


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
@pytest.mark.parametrize("what", CHECKED)
async def test_what_is_looked_up_before_it_is_stored_is_looked_up_again(
    assembly: Assembly, front: httpx.AsyncClient, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch,
    what: str, batch: bool,
) -> None:  # fmt: skip
    module, name, job = CHECKED[what]
    made = await front.put("/v1/channels/oncall", json={"kind": "webhook", "url": "https://a.example", "secret": "s"})
    assert made.status_code in (200, 201), made.text
    await connection.execute(
        """insert into mainspring.secret_keys (tenant_id, key_id, wrapped) values (1, 'k', 'x');
           insert into mainspring.secrets (tenant_id, name, sealed, changed_by) values (1, 'db-password', 'x', 'x')"""
    )
    lose_once(monkeypatch, module, name, after=False)
    answer = await post(front, {"jobs": [job]} if batch else job)
    assert answer.status_code == 201, answer.text
    assert await stored(assembly) == 1


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_a_unique_job_that_was_merged_without_a_change_is_merged_again(
    assembly: Assembly, front: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    job = {**PLAIN, "unique": {"by": ["task"], "else": "keep"}}
    first = (await post(front, job)).json()["job_id"]
    lose_once(monkeypatch, type(assembly.services.submitter), "_store_all", after=lost == "after")
    again = await post(front, job)
    assert (again.status_code, again.json()["job_id"], again.json()["unique"]) == (200, first, "kept"), again.text
    assert await stored(assembly) == 1


@pytest.mark.parametrize(
    "job",
    [
        {**PLAIN, "idempotency_key": "k"},
        {**PLAIN, "idempotency_key": "k", "job_id": "chosen", "schedule": "0 3 1 1 *"},
        {**PLAIN, "unique": {"by": ["task"], "else": "keep"}},
        {**PLAIN, "delay": "1h", "unique": {"by": ["task"], "else": "later"}},
        {**PLAIN, "delay": "1h", "unique": {"by": ["task"], "else": "replace"}},
    ],
    ids=["keyed", "keyed and named", "kept", "later", "replaced"],
)
@pytest.mark.parametrize("lost", ["nothing", "before", "after"])
async def test_of_equal_submissions_in_an_outage_one_is_stored(
    assembly: Assembly, front: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, job: Any, lost: str
) -> None:
    """A client that gets 503 sends it again. Nobody is told of a conflict."""
    if lost != "nothing":
        lose_once(monkeypatch, type(assembly.services.submitter), "_store_all", after=lost == "after")
    assembly.store.outage.away = True
    posting = [asyncio.create_task(post(front, job)) for _ in range(3)]
    await turns(lambda: len(assembly.store.waiting) == 3)
    assembly.store.outage.end()
    answers = [await one for one in posting]
    answers = [await post(front, job) if one.status_code == 503 else one for one in answers]
    assert {one.status_code for one in answers} <= {200, 201}, [one.text for one in answers]
    assert len({one.json()["job_id"] for one in answers}) == 1
    assert await stored(assembly) == 1


async def test_nothing_is_written_for_a_client_that_has_gone(
    assembly: Assembly, front: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_once(monkeypatch, SubmitBatch, "insert", after=False)

    async def gone(_receive: object) -> bool:
        return True

    monkeypatch.setattr("mainspring.api.load_shedding._is_gone", gone)
    with suppress(httpx.HTTPError, AssertionError):  # there is no answer
        await post(front, PLAIN)
    assert await stored(assembly) == 0


async def test_others_are_refused_at_once(assembly: Assembly, front: httpx.AsyncClient) -> None:
    assembly.store.outage.away = True
    for answer in (await front.get("/v1/jobs"), await front.put("/v1/jobs/x", json={"payload": 1})):
        assert (answer.status_code, answer.json()["code"]) == (503, "store_down")


async def test_a_value_that_cannot_be_stored_is_no_outage() -> None:
    assert not outage_queue.is_outage(type("Unencodable", (asyncpg.InterfaceError, ValueError), {})("x"))
    assert outage_queue.is_outage(asyncpg.ReadOnlySQLTransactionError("x"))


async def test_a_refused_change_closes_connections_to_an_old_primary(
    assembly: Assembly, front: httpx.AsyncClient
) -> None:
    """They answer, and accept no change: as after a failover behind one address."""
    store = assembly.store
    for pool in (store.hot, store.reads):
        async with pool.acquire() as connection:
            await connection.execute("set session characteristics as transaction read only")
    posting = [asyncio.create_task(post(front, body)) for body in (PLAIN, BODIES["scheduled"])]
    await turns(lambda: store.outage.suspected)
    await assembly.pulse.run_once()
    assert [answer.status_code for answer in await asyncio.gather(*posting)] == [201, 201]
    assert await stored(assembly) == 2
    async with store.hot.acquire() as connection:
        assert await connection.fetchval("show transaction_read_only") == "off"
