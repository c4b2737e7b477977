"""FEATURES 1.3: reading queues, workers and dead letters."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def test_a_queue_shows_what_waits_what_runs_and_how_fast_it_moves(api: httpx.AsyncClient) -> None:
    assert (await api.get("/v1/queues")).json() == {"queues": []}
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "queue": "light", "retry": {"base": "1h"}}] * 9)
    await api.post("/v1/jobs", json={"task": "noop", "queue": "light", "priority": "critical"})
    await api.post("/v1/jobs", json={"task": "other", "queue": "heavy"})
    worker = HandWorker(api, queues=["light", "idle"])
    orders = await worker.claim(4)
    await worker.report(outcome(orders[0]), outcome(orders[1]), outcome(orders[2], "FAILED", error="x"))
    queues = {queue["name"]: queue for queue in (await api.get("/v1/queues")).json()["queues"]}
    assert list(queues) == ["heavy", "idle", "light"]
    light, heavy, idle = queues["light"], queues["heavy"], queues["idle"]
    assert (light["depth"], light["scheduled"], light["running"], light["workers"]) == (6, 1, 1, 1)
    assert light["rate"] == round(2 / 60, 3)
    assert light["oldest_seconds"] >= 0
    assert (heavy["depth"], heavy["running"], heavy["workers"], heavy["rate"]) == (1, 0, 0, 0.0)
    assert (idle["depth"], idle["oldest_seconds"], idle["workers"]) == (0, None, 1)
    one = (await api.get("/v1/queues/light")).json()
    assert one.pop("behind") == []
    assert one | {"oldest_seconds": None} == light | {"oldest_seconds": None}


async def test_a_queue_says_why_it_is_behind(api: httpx.AsyncClient) -> None:
    async def behind(queue: str) -> list[str]:
        found: list[str] = (await api.get(f"/v1/queues/{queue}")).json()["behind"]
        return found

    await api.post("/v1/jobs:batch", json=[{"task": "noop", "queue": "mails"}] * 5)
    assert await behind("mails") == ["No worker takes from this queue."]
    worker = HandWorker(api, queues=["mails"], tasks=["noop"])
    await worker.claim(1)
    assert await behind("mails") == []
    await api.post("/v1/jobs", json={"task": "nope", "queue": "mails"})
    assert await behind("mails") == ["1 run waits for a worker: no worker offers task nope; did you mean 'noop'?"]
    await api.put("/v1/queues/mails", json={"concurrency": 1})
    assert "Queue mails runs 1 at once, and its concurrency is 1." in await behind("mails")
    await api.post("/v1/queues/mails:pause", json={"reason": "the mail service is down"})
    assert (await behind("mails"))[0] == "Queue mails is paused by test: the mail service is down."
    small = HandWorker(api, queues=["small"], tasks=["noop"])
    small.card = msgspec.structs.replace(small.card, slots=2)
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "queue": "small"}] * 5)
    await small.claim(2)
    assert await behind("small") == ["All 2 slots of the worker that takes from this queue are busy."]
    await api.post(f"/v1/workers/{small.worker_id}:drain")
    assert await behind("small") == ["Every worker that takes from this queue is draining."]


async def test_a_queue_that_nobody_has_used_is_404(api: httpx.AsyncClient) -> None:
    refused = problem(await api.get("/v1/queues/nope"))
    assert (refused["status"], refused["code"]) == (404, "not_found")


async def test_a_worker_shows_what_it_offers_and_holds(api: httpx.AsyncClient) -> None:
    assert (await api.get("/v1/workers")).json() == {"workers": []}
    await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 3)
    worker = HandWorker(api, tasks=["noop", "other"], queues=["default", "heavy"])
    orders = await worker.claim(3)
    await worker.report(outcome(orders[0]))
    [shown] = (await api.get("/v1/workers")).json()["workers"]
    times = {name: shown.pop(name) for name in ("registered_at", "last_beat_at")}
    assert shown == {
        "worker_id": str(worker.worker_id), "name": "by-hand", "state": "LIVE", "queues": ["default", "heavy"],
        "tasks": ["noop", "other"], "slots": 100, "running": 2, "labels": {"zone": "a"}, "version": "1.2.3",
        "shared": False, "holding": 2, "left_out": [], "etag": "live",
    }  # fmt: skip
    assert times["registered_at"] <= times["last_beat_at"]


async def test_a_worker_is_shown_draining_and_then_stopped(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    await worker.hello()
    states = []
    for fields in ({"draining": True}, {"draining": True, "stopped": True}):
        await worker.exchange(**fields)
        states += [shown["state"] for shown in (await api.get("/v1/workers")).json()["workers"]]
    assert states == ["DRAINING", "STOPPED"]


async def test_a_dead_letter_has_what_is_needed_to_understand_it(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"job_id": "j", "name": "N", "task": "noop", "payload": {"a": 1}, "max_retries": 0})
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="ValueError: no"))
    [letter] = (await api.get("/v1/dead-letters")).json()["dead_letters"]
    times = {name: letter.pop(name) for name in ("scheduled_for", "died_at")}
    assert letter == {
        "run_id": str(order.run_id), "job_id": "j", "name": "N", "task": "noop", "queue": "default", "attempts": 1,
        "error_message": "ValueError: no", "payload": {"a": 1}, "reason": "failed 1 time, no tries left",
        "replay_of": None, "tries": None, "generation": 1, "etag": "dead-1",
    }  # fmt: skip
    assert times["scheduled_for"] < times["died_at"]
    shown = (await api.get(f"/v1/dead-letters/{order.run_id}")).json()
    [tried] = shown.pop("tries")
    assert shown | {"tries": None} == letter | times
    assert (tried["attempt"], tried["outcome"], tried["error"]) == (1, "FAILED", "ValueError: no")
    run = (await api.get(f"/v1/runs/{order.run_id}")).json()
    assert (run["status"], run["payload"], run["error_message"]) == ("FAILED", {"a": 1}, "ValueError: no")


async def test_dead_letters_come_in_pages_newest_first(api: httpx.AsyncClient) -> None:
    made = (await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 5)).json()["job_ids"]
    worker = HandWorker(api)
    await worker.report(*(outcome(order, "FAILED", retry=False) for order in await worker.claim(5)))
    first = await api.get("/v1/dead-letters?limit=3")
    rest = await api.get(first.headers["link"][1 : first.headers["link"].index(">")])
    letters = first.json()["dead_letters"] + rest.json()["dead_letters"]
    assert [letter["run_id"] for letter in letters] == made[::-1]
    assert rest.json()["next"] is None
