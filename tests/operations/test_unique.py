"""Unique jobs: a submission with the key of another job is merged into it, or takes the key over."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.roles.assembly import Assembly
from mainspring.store import unique
from mainspring.wire.tasks import OPTIONS_KEYWORD
from tests.api.bookkeeping import problem, rows
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.servers import another_server
from tests.operations.unique_jobs import ALL, BY, body, count, created, sent, view
from tests.store.rows import now_of, until_blocking

pytestmark = pytest.mark.anyio


# -- keep


async def test_a_second_submission_is_kept_and_answers_with_the_first_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    first = await created(api, body({"account": 7, "n": 1}))
    stored = await rows(connection)
    assert await sent(api, body({"account": 7, "n": 2})) == (200, first, "kept")
    assert await rows(connection) == stored
    assert (await view(api, first))["payload"] == {"account": 7, "n": 1}


async def test_the_rule_is_shown_with_its_defaults(api: httpx.AsyncClient) -> None:
    job = await view(api, await created(api, body()))
    assert job["unique"] == {"by": BY, "for": 86400.0, "while": ALL, "else": "keep"}
    job = await view(api, await created(api, body({"account": 8}, **{"else": "replace", "for": "10m"})))
    assert job["unique"] == {"by": BY, "for": 600.0, "while": ["scheduled", "held", "queued"], "else": "replace"}


@pytest.mark.parametrize(
    "other",
    [
        {"payload": {"account": 8}},
        {"payload": {"account": "7"}},
        {"payload": {"account": True}},
        {"payload": {}},
        {"task": "other"},
        {"unique": {"by": ["payload.account"]}},
        {"unique": {"by": [*BY, "queue"]}},
    ],
)
async def test_another_key_is_another_job(api: httpx.AsyncClient, other: dict[str, Any]) -> None:
    await created(api, body())
    await created(api, body() | other)


@pytest.mark.parametrize(
    ("by", "first", "other"),
    [
        ("task", {"task": "noop"}, {"task": "other"}),
        ("name", {"name": "a"}, {"name": "b"}),
        ("queue", {"queue": "a"}, {"queue": "b"}),
        ("labels.a.b/c", {"labels": {"a.b/c": "1"}}, {"labels": {"a.b/c": "2"}}),
        ("payload.a.b", {"payload": {"a": {"b": 1}}}, {"payload": {"a": {"b": 2}}}),
    ],
)
async def test_each_field_is_part_of_the_key(
    api: httpx.AsyncClient, by: str, first: dict[str, Any], other: dict[str, Any]
) -> None:
    job = {"task": "noop", "unique": {"by": [by]}}
    one = await created(api, job | first)
    assert await sent(api, job | first | {"priority": "high"}) == (200, one, "kept")
    await created(api, job | other)


async def test_an_absent_value_counts_as_null(api: httpx.AsyncClient) -> None:
    first = await created(api, body({"account": None}))
    for payload in ({"x": 1}, {"account": None, "x": 2}):
        assert await sent(api, body(payload)) == (200, first, "kept")
    assert await sent(api, {"task": "noop", "unique": {"by": BY}}) == (200, first, "kept")


async def test_tenants_do_not_meet(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await created(api, body())
    await connection.execute("update mainspring.unique_keys set tenant_id = 99")
    await created(api, body())


# -- while and for


@pytest.mark.parametrize("state", ALL)
@pytest.mark.parametrize("named", [True, False], ids=["named", "others"])
async def test_the_key_is_taken_in_the_states_that_the_rule_names(
    api: httpx.AsyncClient, connection: asyncpg.Connection, state: str, named: bool
) -> None:
    states = [state] if named else [other for other in ALL if other != state]
    first = await created(api, body(**{"while": states}, **({"delay": "1h"} if state == "scheduled" else {})))
    if state == "running":
        await HandWorker(api).claim()
    if state == "held":
        await connection.execute("update mainspring.runs set state = 4")
    status, job_id, answer = await sent(api, body())
    assert (status, answer) == ((200, "kept") if named else (201, None))
    assert (job_id == first) is named


async def test_a_paused_job_counts_as_scheduled_and_one_that_backs_off_as_queued(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    paused = await created(api, body({"account": 1}, delay="1h", **{"while": ["scheduled"]}))
    assert (await api.post(f"/v1/jobs/{paused}:pause")).status_code == 200
    assert await sent(api, body({"account": 1})) == (200, paused, "kept")
    backing_off = await created(api, body({"account": 2}, **{"while": ["queued"]}))
    worker = HandWorker(api)
    await worker.report(outcome((await worker.claim())[0], "FAILED", error="no"))
    assert (await view(api, backing_off))["latest_run"]["status"] == "SCHEDULED"
    assert await sent(api, body({"account": 2})) == (200, backing_off, "kept")


@pytest.mark.parametrize("end", ["SUCCESS", "FAILED", "cancelled", "deleted"])
async def test_the_end_of_the_job_frees_the_key(api: httpx.AsyncClient, end: str) -> None:
    delay = {"delay": "1h"} if end == "deleted" else {}
    first = await created(api, body(retries=0, **delay))
    if end in ("cancelled", "deleted"):
        assert (await api.delete(f"/v1/jobs/{first}")).status_code == 200
    else:
        worker = HandWorker(api)
        await worker.report(outcome((await worker.claim())[0], end))
    second = await created(api, body())
    assert second != first
    assert await sent(api, body()) == (200, second, "kept")


async def test_the_key_is_taken_no_longer_than_the_window_of_the_job_that_has_it(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    first = await created(api, body(**{"for": "10m"}))
    await connection.execute("update mainspring.unique_keys set until = until - interval '9 minutes 50 seconds'")
    assert await sent(api, body(**{"for": "1s"})) == (200, first, "kept")
    await connection.execute("update mainspring.unique_keys set until = until - interval '10 seconds'")
    second = await created(api, body(**{"for": "1h"}))
    assert await sent(api, body()) == (200, second, "kept")
    left = await connection.fetchval("select until - clock_timestamp() from mainspring.unique_keys")
    assert timedelta(minutes=59) < left <= timedelta(hours=1)


async def test_a_job_that_fires_keeps_its_key(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    first = await created(api, body(delay="1h", job_id="mine"))
    await make_due(connection, first)
    assert await fire_due(assembly, connection) == 1
    assert await sent(api, body()) == (200, "mine", "kept")


async def test_a_chosen_id_is_not_taken_by_a_submission_that_is_kept(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await created(api, body(job_id="mine"))
    assert await sent(api, body(job_id="other")) == (200, "mine", "kept")
    assert await sent(api, body(job_id="mine")) == (200, "mine", "kept")
    assert await connection.fetchval("select array_agg(job_id) from mainspring.taken_ids") == ["mine"]
    refused = problem(await api.post("/v1/jobs", json={"task": "noop", "job_id": "mine"}))
    assert refused["code"] == "job_exists"


async def test_the_key_belongs_to_a_generation(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await created(api, body(job_id="mine"))
    await api.delete("/v1/jobs/mine")
    answer = await api.post("/v1/jobs", json=body(job_id="mine"))
    assert (answer.status_code, answer.json()["job_id"], answer.json()["generation"]) == (201, "mine", 2)
    kept = await api.post("/v1/jobs", json=body())
    assert (kept.status_code, kept.json()) == (200, {"job_id": "mine", "generation": 2, "unique": "kept"})
    await api.delete("/v1/jobs/mine")
    await api.post("/v1/jobs", json={"task": "noop", "job_id": "mine"})  # the third generation is another job
    assert (await sent(api, body()))[0] == 201


async def test_by_hand_is_not_asked_for_the_key(api: httpx.AsyncClient) -> None:
    first = await created(api, body(retries=0))
    worker = HandWorker(api)
    order = (await worker.claim())[0]
    await worker.report(outcome(order, "FAILED"))
    assert (await api.post(f"/v1/runs/{order.run_id}:retry")).status_code == 202
    # The repeat is a run of the same job, so the job has its key again.
    assert await sent(api, body()) == (200, first, "kept")
    refused = problem(await api.post("/v1/jobs", json=body(**{"else": "replace"})))
    assert (refused["status"], refused["code"]) == (409, "unique_started")


# -- answers


async def test_a_repeat_with_an_idempotency_key_gets_the_same_answer(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    first = await created(api, body({"account": 7, "n": 0}, delay="1m"))
    for word, choice in (("kept", {}), ("replaced", {"else": "replace"}), ("later", {"else": "later", "delay": "1h"})):
        job = body({"account": 7, "n": 1}, idempotency_key=word, **choice)
        assert await sent(api, job) == (200, first, word)
        stored = await rows(connection)
        assert await sent(api, job) == (200, first, word)
        assert await rows(connection) == stored
        assert problem(await api.post("/v1/jobs", json=job | {"priority": 3}))["code"] == "idempotency_key_reused"
    await api.delete(f"/v1/jobs/{first}")
    assert await sent(api, body({"account": 7, "n": 1}, idempotency_key="kept")) == (200, first, "kept")
    created_one = body({"account": 9}, idempotency_key="own")
    own = await created(api, created_one)
    assert await sent(api, created_one) == (200, own, None)


async def test_a_batch_says_it_for_each_job(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    first = await created(api, body({"account": 1}))
    jobs = [
        body({"account": 1}),
        body({"account": 2, "n": 1}, idempotency_key="a"),
        {"task": "noop"},
        body({"account": 2, "n": 2}, **{"else": "replace"}, idempotency_key="b"),
        body({"account": 3}, delay="1m", **{"else": "later"}),
        body({"account": 3}, delay="1h", **{"else": "later"}),
        body({"account": 2, "n": 2}, **{"else": "replace"}, idempotency_key="b"),
        body({"account": 4}, **{"while": ["running"]}),
        body({"account": 4}, **{"while": ["queued"]}),
        body({"account": 4}),
    ]
    answer = await api.post("/v1/jobs:batch", json={"jobs": jobs})
    assert answer.status_code == 201
    found = answer.json()
    ids = found["job_ids"]
    assert found["accepted"] == 10
    assert found["unique"] == ["kept", None, None, "replaced", None, "later", "replaced", None, None, "kept"]
    assert ids[0] == first and ids[1] == ids[3] == ids[6] and ids[4] == ids[5] and ids[8] == ids[9] != ids[7]
    assert (await view(api, ids[1]))["payload"] == {"account": 2, "n": 2}
    left = datetime.fromisoformat((await view(api, ids[4]))["next_fire_at"]) - await now_of(connection)
    assert left > timedelta(minutes=59)
    assert await sent(api, body({"account": 4})) == (200, ids[8], "kept")
    assert await sent(api, jobs[3]) == (200, ids[1], "replaced")
    plain = (await api.post("/v1/jobs:batch", json={"jobs": [{"task": "noop"}]})).json()
    assert "unique" not in plain


async def test_a_batch_with_a_conflict_stores_nothing(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await created(api, body())
    await HandWorker(api).claim()
    stored = await rows(connection)
    jobs = [body({"account": 1}), body(**{"else": "replace"})]
    refused = problem(await api.post("/v1/jobs:batch", json={"jobs": jobs}))
    assert (refused["status"], refused["code"]) == (409, "unique_started")
    assert refused["errors"][0]["index"] == 1
    assert await rows(connection) == stored


# -- races


@pytest.mark.slow
async def test_a_thousand_submissions_at_once_through_two_servers_leave_one_run(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    async with another_server(database_url) as other:
        answers = await asyncio.gather(
            *((api, other)[n % 2].post("/v1/jobs", json=body({"account": 7, "n": n})) for n in range(1000))
        )
    assert sorted(answer.status_code for answer in answers) == [200] * 999 + [201]
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert [answer.json().get("unique") for answer in answers].count("kept") == 999
    assert await count(connection) == 1


async def test_a_submission_waits_for_another_with_its_key_and_sees_what_that_did(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    first = await created(api, body())
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute("select from mainspring.unique_keys for update")
            await other.execute("update mainspring.unique_keys set until = clock_timestamp()")
            waiting = asyncio.ensure_future(api.post("/v1/jobs", json=body()))
            await until_blocking(connection, other.get_server_pid())
    finally:
        await other.close()
    answer = await waiting
    assert answer.status_code == 201 and answer.json()["job_id"] != first


@pytest.mark.parametrize("choice", [{"else": "replace"}, {"else": "later", "delay": "1h"}])
async def test_a_job_that_is_claimed_meanwhile_is_not_changed(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str, choice: dict[str, Any]
) -> None:
    """A claim that has not committed: the submission waits for it, and then sees that the run has started."""
    await created(api, body({"account": 7, "n": 1}, **{"else": "replace"}))
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute("update mainspring.runs set state = 2, attempt = 1, fence = fence + 1")
            waiting = asyncio.ensure_future(api.post("/v1/jobs", json=body({"account": 7, "n": 2}, **choice)))
            await until_blocking(connection, other.get_server_pid())
    finally:
        await other.close()
    answer = await waiting
    assert (answer.status_code, answer.json().get("unique")) == (201, None)
    assert await count(connection) == 2
    kept = await connection.fetchval("select payload ->> 'n' from mainspring.runs where state = 2")
    assert kept == "1"


@pytest.mark.parametrize(
    ("answer", "limits", "choice"),
    [
        ("replaced", {}, {"else": "replace"}),
        ("replaced", {"circuit_breaker": True}, {"else": "replace"}),  # such a run is HELD when it is handed back
        ("later", {}, {"else": "later", "delay": "1h"}),
    ],
)
async def test_a_run_that_is_handed_back_while_a_submission_looks_has_not_started(
    api: httpx.AsyncClient,
    connection: asyncpg.Connection,
    database_url: str,
    answer: str,
    limits: dict[str, Any],
    choice: dict[str, Any],
) -> None:
    """The submission has seen that a worker has the first run, and waits for the row of the second one. Meanwhile the
    first run is handed back."""
    first = await created(api, body({"account": 1, "n": 1}, **limits, **{"else": "replace"}))
    worker = HandWorker(api)
    [order] = await worker.claim()
    second = await created(api, body({"account": 2, "n": 1}, **{"else": "replace"}))
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute("select from mainspring.runs where run_id::text = $1 for update", second)
            jobs = [body({"account": account, "n": 2}, **choice) for account in (1, 2)]
            waiting = asyncio.ensure_future(api.post("/v1/jobs:batch", json={"jobs": jobs}))
            await until_blocking(connection, other.get_server_pid())
            await worker.report(outcome(order, "RETURNED"))
    finally:
        await other.close()
    found = await waiting
    assert (found.status_code, found.json().get("unique")) == (201, [answer] * 2), found.text
    assert found.json()["job_ids"] == [first, second]


# -- upkeep, and other ways in


async def test_keys_whose_time_is_over_are_deleted_and_no_other(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for account in range(5):
        await created(api, body({"account": account}))
    await connection.execute(
        """update mainspring.unique_keys set until = clock_timestamp() - interval '1 s'
           where digest in (select digest from mainspring.unique_keys limit 3)"""
    )
    taken = "select from mainspring.unique_keys where until < clock_timestamp() limit 1 for update"
    assert await unique.prune(connection, batch=1) == 3
    assert await connection.fetch(taken) == []
    assert len([one for n in range(5) if (one := await sent(api, body({"account": n})))[0] == 200]) == 2


async def test_a_key_that_a_submission_has_locked_is_not_deleted(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    await created(api, body())
    await connection.execute("update mainspring.unique_keys set until = clock_timestamp() - interval '1 s'")
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute("select from mainspring.unique_keys for update")
            assert await unique.prune(connection) == 0
    finally:
        await other.close()
    assert await unique.prune(connection) == 1


async def test_sql_refuses_it_by_name_also_as_an_option_of_the_task(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    submit = "select mainspring.submit($1::text::jsonb)"
    with pytest.raises(asyncpg.InvalidParameterValueError, match="unique cannot be given in SQL"):
        await connection.fetchval(submit, '{"task": "noop", "unique": {"by": ["task"]}}')
    await declare(api)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="the task 'noop' declares unique"):
        await connection.fetchval(submit, '{"task": "noop"}')
    assert await connection.fetchval(submit, '{"task": "noop", "schedule": {"every": "1h"}}')


async def declare(api: httpx.AsyncClient, rule: dict[str, Any] | None = None) -> None:
    """A worker declares the task noop with a rule."""
    worker = HandWorker(api)
    options = msgspec.json.encode({OPTIONS_KEYWORD: {"unique": rule or {"by": BY}}})
    worker.card = msgspec.structs.replace(worker.card, signatures={"noop": msgspec.Raw(options)})
    await worker.hello()


async def test_the_option_of_a_task_applies_to_jobs_that_run_once(api: httpx.AsyncClient) -> None:
    await declare(api, {"by": BY, "for": "10m"})
    first = await created(api, {"task": "noop", "payload": {"account": 1}})
    assert await sent(api, {"task": "noop", "payload": {"account": 1}}) == (200, first, "kept")
    assert (await view(api, first))["unique"]["for"] == 600.0
    every = {"task": "noop", "payload": {"account": 1}, "schedule": {"every": "1h"}}
    assert (await view(api, await created(api, every)))["unique"] is None
    refused = problem(await api.post("/v1/jobs", json={"task": "noop", "payload": {"account": []}}))
    assert (refused["status"], refused["field"]) == (422, "payload.account")
    assert "defaults that noop declares" in refused["hint"]


async def test_a_change_does_not_change_the_key(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    first = await created(api, body({"account": 7, "n": 1}, delay="1h"))
    assert (await api.patch(f"/v1/jobs/{first}", json={"payload": {"n": 2, "account": 7.0}})).status_code == 200
    stored = await rows(connection)
    for change, field in (
        ({"payload": {"n": 2}}, "payload.account"),
        ({"task": "other"}, "task"),
        ({"schedule": {"every": "1h"}}, "unique"),
        ({"unique": {"by": ["task"]}}, "unique"),
    ):
        refused = problem(await api.patch(f"/v1/jobs/{first}", json=change))
        assert (refused["status"], refused["field"]) == (422, field), change
        assert refused["hint"]
    assert await rows(connection) == stored
    assert (await view(api, first))["payload"] == {"n": 2, "account": 7.0}
    assert await sent(api, body()) == (200, first, "kept")
    # A job that is pushed can be told to run now.
    pushed = await created(api, body({"account": 8}, delay="1h", **{"else": "later"}))
    assert (await api.patch(f"/v1/jobs/{pushed}", json={"schedule": "now"})).status_code == 200
