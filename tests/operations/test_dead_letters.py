"""Dead letters: filters, errors of every attempt, one replay for the same fire time, discard."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.lifecycle.report import settle
from mainspring.roles.assembly import Assembly
from mainspring.store import dead_letters, fires, jobs
from mainspring.wire.exchange import RunOrder, WorkerHello
from tests.api.bookkeeping import problem, rows
from tests.operations.firing import fire_due, let_backoff_pass, make_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_outcomes import claimed, run
from tests.store.rows import until_blocking

pytestmark = pytest.mark.anyio


async def die(api: httpx.AsyncClient, *, error: str = "boom", **fields: Any) -> RunOrder:
    """A job whose only run failed for good."""
    worker, order = await claimed(api, max_retries=0, **fields)
    await worker.report(outcome(order, "FAILED", error=error))
    return order


async def letters(api: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await api.get("/v1/dead-letters", params=query)
    assert answer.status_code == 200, answer.text
    return [letter["run_id"] for letter in answer.json()["dead_letters"]]


async def replay(api: httpx.AsyncClient, run_id: Any, **body: Any) -> dict[str, Any]:
    answer = await api.post(f"/v1/dead-letters/{run_id}:replay", **({"json": body} if body else {}))
    assert answer.status_code == 202, answer.text
    new: dict[str, Any] = answer.json()
    return new


async def a_failed_fire(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, job_id: str
) -> RunOrder:
    """The run of a recurring job's fire, failed for good."""
    await make_due(connection, job_id)
    await fire_due(assembly, connection)
    worker = HandWorker(api)
    [order] = await worker.claim()
    assert order.job_id == job_id
    await worker.report(outcome(order, "FAILED", error="boom", retry=False))
    return order


async def recurring(api: httpx.AsyncClient, job_id: str, **fields: Any) -> None:
    body = {"job_id": job_id, "task": "noop", "schedule": {"every": "1h"}, **fields}
    assert (await api.post("/v1/jobs", json=body)).status_code == 201


async def test_dead_letters_are_found_by_job_task_queue_error_and_time(api: httpx.AsyncClient) -> None:
    first = str((await die(api, job_id="one", error="TimeoutError: 100% slow")).run_id)
    middle = (await api.get(f"/v1/dead-letters/{first}")).json()["died_at"]
    second = str((await die(api, error="ValueError: no")).run_id)
    await api.post("/v1/jobs", json={"task": "other", "queue": "heavy", "max_retries": 0})
    worker = HandWorker(api, tasks=["other"], queues=["heavy"])
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED"))
    third = str(order.run_id)
    expected: list[tuple[dict[str, str], list[str]]] = [
        ({}, [third, second, first]), ({"job": "one"}, [first]), ({"job": second}, [second]), ({"job": "x"}, []),
        ({"task": "noop"}, [second, first]), ({"task": "x"}, []), ({"queue": "heavy"}, [third]),
        ({"error": "timeout"}, [first]), ({"error": "100% s"}, [first]), ({"error": "error"}, [second, first]),
        ({"since": middle}, [third, second, first]), ({"until": middle}, []),
        ({"since": "2099-01-01T00:00:00Z"}, []), ({"until": "2099-01-01T00:00:00Z", "task": "other"}, [third]),
    ]  # fmt: skip
    assert [(query, await letters(api, **query)) for query, _ in expected] == expected
    assert problem(await api.get("/v1/dead-letters?since=yesterday"))["field"] == "since"


async def test_a_dead_letter_shows_the_error_of_every_try(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, max_retries=1, payload={"a": 1})
    await worker.report(outcome(order, "FAILED", error="first"))
    await let_backoff_pass(connection)
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="second"))
    letter = (await api.get(f"/v1/dead-letters/{order.run_id}")).json()
    assert (letter["attempts"], letter["payload"], letter["error_message"]) == (2, {"a": 1}, "second")
    assert [(one["attempt"], one["outcome"], one["error"]) for one in letter["tries"]] == [
        (1, "FAILED", "first"), (2, "FAILED", "second"),
    ]  # fmt: skip
    assert {one["worker_name"] for one in letter["tries"]} == {"by-hand"}
    assert all(one["started_at"] <= one["ended_at"] for one in letter["tries"])


async def test_a_replay_is_a_new_run_for_the_same_fire_time_with_all_its_attempts(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(
        api, name="N", payload={"a": 1}, retry={"max_attempts": 2}, timeout="5m", priority="high"
    )
    for _ in range(2):
        await worker.report(outcome(order, "FAILED", error="boom"))
        await let_backoff_pass(connection)
        order = next(iter((await worker.exchange(free=1)).runs), order)
    new = await replay(api, order.run_id)
    assert new["run_id"] != str(order.run_id)
    assert (new["replay_of"], new["trigger"]) == (str(order.run_id), f"replay:{order.run_id}")
    assert (new["status"], new["attempt_number"], new["max_attempts"]) == ("QUEUED", 0, 2)
    assert (new["name"], new["payload"], new["priority"], new["error_message"]) == ("N", {"a": 1}, "high", None)
    assert await letters(api) == []
    [again] = await worker.claim()
    assert (str(again.run_id), again.attempt, again.timeout) == (new["run_id"], 1, 300.0)
    assert (again.job_id, again.scheduled_for) == (order.job_id, order.scheduled_for), "the same idempotency key"
    runs = (await api.get(f"/v1/jobs/{order.job_id}/runs")).json()
    assert [one["run_id"] for one in runs] == [new["run_id"], str(order.run_id)]
    await worker.report(outcome(again))
    status = (await api.get(f"/v1/jobs/{order.job_id}/status")).json()
    assert status["latest_run"]["run_id"] == new["run_id"]
    assert (await run(api, order))["status"] == "FAILED", "an ended run does not change"


async def test_a_replay_that_dies_is_a_dead_letter_that_can_be_replayed_in_its_turn(api: httpx.AsyncClient) -> None:
    order = await die(api)
    ids = [str(order.run_id)]
    worker = HandWorker(api)
    for _ in range(2):
        new = await replay(api, ids[-1])
        assert new["replay_of"] == ids[-1]
        [again] = await worker.claim()
        await worker.report(outcome(again, "FAILED", error="again"))
        assert await letters(api) == [new["run_id"]]
        letter = (await api.get(f"/v1/dead-letters/{new['run_id']}")).json()
        assert (letter["replay_of"], letter["job_id"]) == (ids[-1], order.job_id)
        assert again.scheduled_for == order.scheduled_for
        ids.append(new["run_id"])
    listed = (await api.get(f"/v1/jobs/{order.job_id}/runs")).json()
    assert [one["run_id"] for one in listed] == ids[::-1]


async def test_a_replay_with_a_changed_payload_is_checked_as_at_intake(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    order = await die(api, payload={"a": 1})
    before = await rows(connection)
    for payload, status, field in (
        ([1], 422, "payload"),
        ("x", 422, "payload"),
        ({"a": "x" * 300_000}, 413, "payload"),
    ):
        answer = await api.post(f"/v1/dead-letters/{order.run_id}:replay", json={"payload": payload})
        refused = problem(answer)
        assert (refused["status"], refused["field"]) == (status, field)
    refused = problem(await api.post(f"/v1/dead-letters/{order.run_id}:replay", json={"pay": {}}))
    assert (refused["code"], refused["hint"]) == ("unknown_field", "did you mean 'payload'?")
    assert await rows(connection) == before
    new = await replay(api, order.run_id, payload={"a": 2})
    assert new["payload"] == {"a": 2}
    assert (await run(api, order))["payload"] == {"a": 1}


async def test_a_changed_payload_must_fit_the_tasks_signature(api: httpx.AsyncClient) -> None:
    order = await die(api, payload={"n": 1})
    worker = HandWorker(api)
    schema = b'{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
    worker.card = WorkerHello(
        name="typed", queues=["default"], tasks=["noop"], slots=1, signatures={"noop": msgspec.Raw(schema)}
    )
    await worker.hello()
    refused = problem(await api.post(f"/v1/dead-letters/{order.run_id}:replay", json={"payload": {"n": "x"}}))
    assert (refused["status"], refused["code"]) == (422, "bad_payload")
    assert (await replay(api, order.run_id, payload={"n": 2}))["payload"] == {"n": 2}


async def test_a_shell_job_whose_command_is_in_its_payload_gets_the_new_command(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"task": "shell", "payload": {"command": "false"}, "max_retries": 0})
    worker = HandWorker(api, tasks=["shell"])
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="exit code 1"))
    await replay(api, order.run_id, payload={"command": "true"})
    [again] = await worker.claim()
    assert (order.command, again.command) == ("false", "true")


async def test_a_dead_letter_is_replayed_once_however_many_ask_at_once(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    order = await die(api)
    verbs = ["dead-letters/{}:replay", "runs/{}:retry", "dead-letters/{}/replay", "runs/{}/retry"] * 3
    answers = await asyncio.gather(*(api.post(f"/v1/{verb.format(order.run_id)}") for verb in verbs))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * (len(verbs) - 1)
    new = next(answer.json()["run_id"] for answer in answers if answer.status_code == 202)
    refused = [problem(answer) for answer in answers if answer.status_code == 409]
    assert {one["code"] for one in refused} == {"replayed"}
    assert {one["detail"] for one in refused} == {f"run {order.run_id} was repeated as run {new}"}
    assert (await rows(connection))["runs"] == 1
    worker = HandWorker(api)
    [again] = await worker.claim()
    await worker.report(outcome(again))
    assert (await api.post(f"/v1/runs/{order.run_id}:retry")).status_code == 409, "also when the replay has ended"


async def test_a_job_that_runs_one_at_a_time_has_one_replay_at_a_time(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await recurring(api, "often")
    orders = [await a_failed_fire(api, assembly, connection, "often") for _ in range(3)]
    answer = (await api.post("/v1/dead-letters:replay", json={"job": "often"})).json()
    assert (answer["replayed"], len(answer["run_ids"])) == (1, 1)
    assert answer["left"] == {"a run of its job is alive, and the job runs one at a time": 2}
    assert len(await letters(api)) == 2
    refused = problem(await api.post(f"/v1/dead-letters/{orders[2].run_id}:replay"))
    assert (refused["status"], refused["code"]) == (409, "overlap")
    assert (await letters(api))[0] == str(orders[2].run_id), "it is still there"
    worker = HandWorker(api)
    [again] = await worker.claim()
    assert again.exclusive and again.scheduled_for == orders[0].scheduled_for
    await make_due(connection, "often")
    await fire_due(assembly, connection)
    assert (await api.get("/v1/jobs/often/runs")).json()[0]["status"] == "SKIPPED", "a fire sees the replay"
    await worker.report(outcome(again))
    assert (await api.post(f"/v1/dead-letters/{orders[2].run_id}:replay")).status_code == 202


async def test_where_overlap_is_allowed_all_are_replayed(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await recurring(api, "often", overlap="allow")
    for _ in range(3):
        await a_failed_fire(api, assembly, connection, "often")
    answer = (await api.post("/v1/dead-letters:replay", json={"job": "often"})).json()
    assert (answer["replayed"], answer["left"], answer["more"]) == (3, {}, False)
    worker = HandWorker(api)
    assert not any(order.exclusive for order in await worker.claim(3))


async def test_dead_letters_of_a_cancelled_job_are_left(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await recurring(api, "often")
    order = await a_failed_fire(api, assembly, connection, "often")
    await api.delete("/v1/jobs/often")
    for path in (f"dead-letters/{order.run_id}:replay", f"runs/{order.run_id}:retry"):
        refused = problem(await api.post(f"/v1/{path}"))
        assert (refused["status"], refused["code"]) == (409, "job_cancelled")
    answer = (await api.post("/v1/dead-letters:replay", json={"all": True})).json()
    assert (answer["replayed"], answer["left"]) == (0, {"its job is CANCELLED": 1})
    assert await letters(api) == [str(order.run_id)]


async def test_many_are_replayed_by_filter_with_one_payload_and_up_to_a_limit(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post(
        "/v1/jobs:batch", json=[{"task": "noop", "max_retries": 0, "payload": {"n": n}} for n in range(1200)]
    )
    worker = HandWorker(api)
    orders = await worker.claim(1200)
    await worker.report(*(outcome(order, "FAILED", error=f"e{n % 2}") for n, order in enumerate(orders)))
    first = (await api.post("/v1/dead-letters:replay", json={"error": "e1", "limit": 10})).json()
    assert (first["replayed"], first["more"], len(first["run_ids"])) == (10, True, 10)
    rest = (await api.post("/v1/dead-letters:replay", json={"all": True, "payload": {"same": 1}})).json()
    assert (rest["replayed"], rest["more"], rest["left"], len(rest["run_ids"])) == (1190, False, {}, 1000)
    assert (await rows(connection))["dead_letters"] == 0
    payloads = await connection.fetch("select payload::text as p, count(*) from mainspring.runs group by 1")
    assert {row["p"]: row["count"] for row in payloads}['{"same":1}'] == 1190


async def test_something_must_say_which_ones(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await die(api)
    before = await rows(connection)
    for verb in ("replay", "discard"):
        refused = problem(await api.post(f"/v1/dead-letters:{verb}", json={}))
        assert (refused["status"], refused["hint"]) == (422, 'for all of them: {"all": true}')
        assert problem(await api.post(f"/v1/dead-letters:{verb}"))["status"] == 400
        assert problem(await api.post(f"/v1/dead-letters:{verb}", json={"limit": 5}))["status"] == 422
        assert problem(await api.post(f"/v1/dead-letters:{verb}", json={"all": True, "limit": 0}))["field"] == "limit"
        assert problem(await api.post(f"/v1/dead-letters:{verb}", json={"since": "then"}))["field"] == "since"
        refused = problem(await api.post(f"/v1/dead-letters:{verb}", json={"jbo": "x"}))
        assert (refused["code"], refused["hint"]) == ("unknown_field", "did you mean 'job'?")
    refused = problem(await api.post("/v1/dead-letters:discard", json={"all": True, "payload": {}}))
    assert refused["field"] == "payload"
    assert await rows(connection) == before


async def test_dead_letters_are_discarded_by_id_and_by_filter_and_their_runs_stay(api: httpx.AsyncClient) -> None:
    one, two, three = [await die(api, error=error) for error in ("a", "b", "b")]
    assert (await api.post(f"/v1/dead-letters/{one.run_id}:discard")).json() == {"discarded": 1, "more": False}
    assert problem(await api.post(f"/v1/dead-letters/{one.run_id}:discard"))["status"] == 404
    assert problem(await api.post(f"/v1/dead-letters/{one.run_id}:replay"))["status"] == 404
    limited = await api.post("/v1/dead-letters:discard", json={"error": "b", "limit": 1})
    assert limited.json() == {"discarded": 1, "more": True}
    assert (await api.post("/v1/dead-letters:discard", json={"error": "b"})).json()["discarded"] == 1
    assert await letters(api) == []
    for order in (one, two, three):
        assert (await run(api, order))["status"] == "FAILED"
    assert (await api.post(f"/v1/runs/{one.run_id}:retry")).status_code == 202, "it can still be run again"


async def test_any_run_that_has_ended_can_be_retried_once(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    await worker.hello()
    cancelled = (await api.post("/v1/jobs", json={"task": "noop", "payload": {"a": 1}})).json()["job_id"]
    await api.post(f"/v1/runs/{cancelled}:cancel")
    new = (await api.post(f"/v1/runs/{cancelled}:retry")).json()
    assert (new["job_id"], new["replay_of"], new["payload"]) == (cancelled, cancelled, {"a": 1})
    refused = problem(await api.post(f"/v1/runs/{new['run_id']}:retry"))
    assert (refused["status"], refused["code"]) == (409, "run_alive")
    [order] = await worker.claim()
    await worker.report(outcome(order))
    again = (await api.post(f"/v1/runs/{new['run_id']}:retry")).json()
    assert (again["job_id"], again["replay_of"], again["payload"]) == (cancelled, new["run_id"], {"a": 1})
    refused = problem(await api.post(f"/v1/runs/{new['run_id']}:retry"))
    assert (refused["status"], refused["code"]) == (409, "replayed")

    await recurring(api, "often")
    first = (await api.post("/v1/jobs/often:runNow")).json()["run_id"]
    skipped = (await api.post("/v1/jobs/often:runNow")).json()["run_id"]
    assert problem(await api.post(f"/v1/runs/{skipped}:retry"))["code"] == "overlap"
    await api.post(f"/v1/runs/{first}:cancel")
    retried = (await api.post(f"/v1/runs/{skipped}:retry", json={"payload": {"b": 2}})).json()
    assert (retried["status"], retried["replay_of"], retried["payload"]) == ("QUEUED", skipped, {"b": 2})
    assert problem(await api.post(f"/v1/runs/{skipped}:retry"))["code"] == "replayed"
    for unknown in ("0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11", "nope"):
        assert problem(await api.post(f"/v1/runs/{unknown}:retry"))["status"] == 404
        assert problem(await api.post(f"/v1/dead-letters/{unknown}:replay"))["status"] == 404
    refused = problem(await api.post(f"/v1/dead-letters/{first}:explode"))
    assert (refused["code"], refused["hint"]) == ("no_such_route", "use :replay or :discard")


async def test_retrying_a_dead_run_takes_its_dead_letter_away(api: httpx.AsyncClient) -> None:
    order = await die(api, job_id="mine")
    new = (await api.post(f"/v1/runs/{order.run_id}:retry")).json()
    assert (new["job_id"], new["replay_of"]) == ("mine", str(order.run_id))
    assert await letters(api) == []
    assert [one["run_id"] for one in (await api.get("/v1/jobs/mine/runs")).json()] == [
        new["run_id"],
        str(order.run_id),
    ]


async def test_an_at_most_once_run_is_repeated_only_by_hand_and_stays_exclusive(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "delivery": "at_most_once"})
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="x"))
    await replay(api, order.run_id)
    [again] = await worker.claim()
    assert (again.exclusive, again.max_attempts) == (True, 1)


@pytest.mark.parametrize("job_id", [None, "once"])
@pytest.mark.parametrize("overlap", ["skip", "allow"])
async def test_the_overlap_rule_of_a_one_time_job_that_has_fired(
    api: httpx.AsyncClient, job_id: str | None, overlap: str
) -> None:
    worker = HandWorker(api)
    body = {"task": "noop", "retries": 0, "overlap": overlap} | ({} if job_id is None else {"job_id": job_id})
    made = (await api.post("/v1/jobs", json=body)).json()["job_id"]
    [own] = await worker.claim()
    ended = [str(own.run_id)]
    if overlap == "skip":
        skipped = (await api.post(f"/v1/jobs/{made}:runNow")).json()
        assert skipped["status"] == "SKIPPED"
        assert problem(await api.post(f"/v1/runs/{skipped['run_id']}:retry"))["code"] == "overlap", "own is alive"
        ended.append(skipped["run_id"])
    await worker.report(outcome(own))
    for end in ("SUCCESS", "FAILED", "FAILED"):
        await api.post(f"/v1/jobs/{made}:runNow")
        [order] = await worker.claim()
        await worker.report(outcome(order, end, error="x"))
        ended.append(str(order.run_id))
    asked = await asyncio.gather(*(api.post(f"/v1/runs/{run_id}:retry") for run_id in ended))
    codes = sorted(answer.json().get("code", "") for answer in asked)
    if overlap == "allow":
        assert codes == [""] * len(ended)
        return
    assert codes == ["", *["overlap"] * (len(ended) - 1)]
    [order] = await worker.claim()
    await worker.report(outcome(order))
    left = len(await letters(api))
    again = (await api.post("/v1/dead-letters:replay", json={"job": made})).json()
    assert (again["replayed"], sum(again["left"].values())) == (1, left - 1)
    assert (await api.post(f"/v1/jobs/{made}:runNow")).json()["status"] == "SKIPPED"


async def test_a_replay_that_waited_for_a_run_now_sees_its_run(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, database_url: str
) -> None:
    """Under READ COMMITTED the snapshot of a statement is older than its lock, so the next statement decides."""
    await recurring(api, "often")
    order = await a_failed_fire(api, assembly, connection, "often")
    observer = await asyncpg.connect(database_url)
    transaction = connection.transaction()
    await transaction.start()
    assert await jobs.lock(connection, DEFAULT_TENANT, "often")
    run_id = uuid7()
    await fires.run_now(connection, DEFAULT_TENANT, "often", run_id, f"manual:{run_id}")
    asked = asyncio.create_task(api.post(f"/v1/dead-letters/{order.run_id}:replay"))
    await until_blocking(observer, connection.get_server_pid())
    await transaction.commit()
    assert problem(await asked)["code"] == "overlap"
    assert (await rows(connection))["runs"] == 1
    assert await letters(api) == [str(order.run_id)]
    await observer.close()


async def test_replays_are_forgotten_with_the_history(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    old, young = await die(api), await die(api)
    await replay(api, old.run_id)
    await replay(api, young.run_id)
    await connection.execute(
        "update mainspring.replays set replayed_at = replayed_at - interval '31 days' where run_id = $1", old.run_id
    )
    assert await dead_letters.prune(connection, 30) == 1
    assert [row["run_id"] for row in await connection.fetch("select run_id from mainspring.replays")] == [young.run_id]


async def test_a_payload_that_fits_some_is_given_to_those_and_the_others_are_left(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    orders = [await die(api, payload={"n": 1}, error="e") for _ in range(2)]
    await api.post("/v1/jobs", json={"task": "typed", "max_retries": 0})
    worker = HandWorker(api, tasks=["typed"])
    [strict] = await worker.claim()
    await worker.report(outcome(strict, "FAILED", error="e"))
    schema = b'{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
    worker.card = msgspec.structs.replace(worker.card, signatures={"typed": msgspec.Raw(schema)})
    await worker.hello()
    before = await rows(connection)
    refused = problem(await api.post("/v1/dead-letters:replay", json={"task": "typed", "payload": {"n": "x"}}))
    assert (refused["status"], refused["code"], refused["field"]) == (422, "bad_payload", "payload.n")
    assert problem(await api.post("/v1/dead-letters:replay", json={"all": True, "payload": []}))["status"] == 422
    assert await rows(connection) == before
    done = (await api.post("/v1/dead-letters:replay", json={"error": "e", "payload": {"n": "x"}})).json()
    assert (done["replayed"], list(done["left"].values())) == (len(orders), [1])
    assert "typed" in next(iter(done["left"]))
    assert await letters(api) == [str(strict.run_id)]


async def test_a_run_that_dies_while_somebody_retries_it_leaves_no_dead_letter_behind(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    worker, order = await claimed(api, max_retries=0)
    observer = await asyncpg.connect(database_url)
    async with connection.transaction():
        await connection.execute("lock table mainspring.runs in access exclusive mode")
        asked = asyncio.create_task(api.post(f"/v1/runs/{order.run_id}:retry"))
        await until_blocking(observer, connection.get_server_pid())
        await settle(connection, worker.worker_id, [outcome(order, "FAILED", error="x")], lambda: 0.5)
    assert (await asked).status_code == 202
    assert await letters(api) == []
    await observer.close()


async def test_verbs_that_have_no_use_for_a_payload_refuse_one(api: httpx.AsyncClient) -> None:
    order = await die(api)
    for address in (f"/v1/dead-letters/{order.run_id}:discard", f"/v1/runs/{order.run_id}:cancel"):
        refused = problem(await api.post(address, json={"payload": {}}))
        assert (refused["status"], refused["field"]) == (422, "payload")
    assert await letters(api) == [str(order.run_id)]
