"""The exchange server of the worker's tests answers as the real one does: the same script to both, the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from uuid import UUID

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.kernel.ids import uuid7
from mainspring.roles.assembly import Assembly
from mainspring.store import workers
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeReply, Held, Outcome, Progress, QueueShare
from tests.operations.hand_worker import HandWorker
from tests.operations.test_long_poll import assembly as assembly
from tests.operations.test_long_poll import until_it_waits

from .exchange_server import ExchangeServer, an_order

pytestmark = pytest.mark.anyio

Answer = dict[str, Any]
LONG_POLL = 10_000
BEAT = 120.0  # as the assembly has it: nobody is told twice


class Side(Protocol):
    """One of the two servers, and what a script can have done there besides exchanges."""

    api: httpx.AsyncClient

    async def submit(self, count: int, *, task: str, queue: str) -> list[UUID]: ...

    async def cancel(self, run_id: UUID) -> None: ...

    async def drain(self, worker_id: UUID) -> None: ...

    async def lose(self, worker_id: UUID) -> None:
        """The incarnation is given up, as the rescuer does."""

    async def wait_for_long_poll(
        self, worker: HandWorker, ask: Callable[[], Awaitable[Answer]]
    ) -> asyncio.Task[Answer]:
        """Send a long poll; returns when it waits at the server."""


class Real:
    def __init__(self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
        self.api = api
        self._assembly = assembly
        self._connection = connection

    async def submit(self, count: int, *, task: str, queue: str) -> list[UUID]:
        answer = await self.api.post("/v1/jobs:batch", json=[{"task": task, "queue": queue}] * count)
        assert answer.status_code == 201, answer.text
        return list(map(UUID, answer.json()["job_ids"]))

    async def cancel(self, run_id: UUID) -> None:
        assert (await self.api.post(f"/v1/runs/{run_id}:cancel")).status_code < 300

    async def drain(self, worker_id: UUID) -> None:
        assert (await self.api.post(f"/v1/workers/{worker_id}:drain")).status_code == 202

    async def lose(self, worker_id: UUID) -> None:
        assert await workers.set_state(self._connection, worker_id, WorkerState.LOST)

    async def wait_for_long_poll(
        self, worker: HandWorker, ask: Callable[[], Awaitable[Answer]]
    ) -> asyncio.Task[Answer]:
        async with until_it_waits(self._assembly.long_polls, worker.worker_id):
            return asyncio.ensure_future(_run(ask))


class Double:
    def __init__(self, server: ExchangeServer, api: httpx.AsyncClient) -> None:
        self.api = api
        self._server = server

    async def submit(self, count: int, *, task: str, queue: str) -> list[UUID]:
        orders = [an_order(task, queue=queue) for _ in range(count)]
        self._server.submit(*orders)
        return [order.run_id for order in orders]

    async def cancel(self, run_id: UUID) -> None:
        self._server.cancel(run_id)

    async def drain(self, worker_id: UUID) -> None:
        assert list(self._server.records.workers) == [worker_id]
        self._server.ask_to_drain()

    async def lose(self, worker_id: UUID) -> None:
        self._server.records.end_worker(worker_id, WorkerState.LOST)

    async def wait_for_long_poll(
        self, worker: HandWorker, ask: Callable[[], Awaitable[Answer]]
    ) -> asyncio.Task[Answer]:
        before = self._server.waiting
        asking = asyncio.ensure_future(_run(ask))
        await self._server.until(lambda: self._server.waiting > before)
        return asking


async def _run(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    return await ask()


class Scene:
    """Workers that a script plays by hand at one side. Answers name runs by the order of their submission."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.answers: list[Answer] = []
        self.runs: list[UUID] = []

    def worker(self, **offers: Any) -> HandWorker:
        return HandWorker(self.side.api, **offers)

    async def submit(self, count: int = 1, *, task: str = "noop", queue: str = "default") -> list[UUID]:
        made = await self.side.submit(count, task=task, queue=queue)
        self.runs += made
        return made

    async def ask(self, worker: HandWorker, **fields: Any) -> Answer:
        """Send the worker's next exchange, with hello if it is the first; keeps what was answered."""
        said: Answer = {}
        self.answers.append(said)  # in the order of the requests
        first = {} if worker.seq else {"hello": worker.card}
        answer = await worker.ask(**{**first, **fields})
        said["status"] = answer.status_code
        if answer.status_code == 200:
            reply = msgspec.json.decode(answer.content, type=ExchangeReply)
            said |= msgspec.structs.asdict(reply)
            said |= {name: sorted(map(self._name, said[name])) for name in ("fenced", "stop")}
            said["runs"] = sorted((self._name(o.run_id), o.fence, o.attempt, o.task, o.queue) for o in reply.runs)
        else:
            problem = answer.json()
            said |= {name: problem.get(name) for name in ("status", "code", "field", "detail")}
        return said

    async def claim(self, worker: HandWorker, count: int = 1) -> list[Held]:
        answer = await self.ask(worker, free=count)
        assert len(answer["runs"]) == count
        return [Held(self.runs[index], fence) for index, fence, *_ in answer["runs"]]

    async def start_waiting(self, worker: HandWorker, **fields: Any) -> asyncio.Task[Answer]:
        if not worker.seq:
            await self.ask(worker)
        return await self.side.wait_for_long_poll(worker, lambda: self.ask(worker, wait_ms=LONG_POLL, **fields))

    def _name(self, run_id: UUID) -> int:
        return self.runs.index(run_id) if run_id in self.runs else -1


def ended(held: Held, status: str = "SUCCESS", **fields: Any) -> Outcome:
    return Outcome(held.run_id, held.fence, status, **fields)  # type: ignore[arg-type]


Script = Callable[[Scene], Awaitable[None]]


async def hello_claim_and_report(scene: Scene) -> None:
    worker = scene.worker()
    assert (await scene.ask(worker))["runs"] == []
    await scene.submit(3)
    held = await scene.claim(worker, 2)
    report = await scene.ask(worker, outcomes=[ended(one) for one in held], free=5)
    assert (report["acked"], report["fenced"], len(report["runs"])) == (2, [], 1)
    assert (await scene.ask(worker, stopped=True))["status"] == 200


async def only_what_the_worker_offers(scene: Scene) -> None:
    await scene.submit(1, task="other")
    await scene.submit(1, queue="heavy")
    await scene.submit(1)
    assert len((await scene.ask(scene.worker(), free=5))["runs"]) == 1
    assert len((await scene.ask(scene.worker(tasks=["other"], queues=["default", "heavy"]), free=5))["runs"]) == 1


async def shares_and_room(scene: Scene) -> None:
    await scene.submit(3, queue="heavy")
    await scene.submit(3, queue="light")
    await scene.submit(3, task="other", queue="light")
    worker = scene.worker(tasks=["noop", "other"], queues=["heavy", "light"])
    shares = [QueueShare(1, "heavy", ["light"]), QueueShare(2, "light", ["heavy"])]
    assert len((await scene.ask(worker, free=4, shares=shares))["runs"]) == 3
    worker = scene.worker(tasks=["other"], queues=["light"])
    assert len((await scene.ask(worker, free=9, room={"other": 1}))["runs"]) == 1
    assert len((await scene.ask(worker, free=9, room={"other": 0}))["runs"]) == 0


async def the_same_outcome_twice(scene: Scene) -> None:
    worker = scene.worker()
    await scene.submit(3)
    held = await scene.claim(worker, 3)
    outcomes = [ended(held[0]), ended(held[1], "CANCELLED"), ended(held[2], "RETURNED")]
    for _ in range(2):
        assert (await scene.ask(worker, outcomes=outcomes))["fenced"] == []
    assert (await scene.ask(worker, outcomes=[ended(held[2])]))["fenced"] == [2], "it was handed back"
    assert (await scene.ask(worker, outcomes=[ended(held[0], "RETURNED")]))["fenced"] == []


async def what_is_not_its_own_is_fenced(scene: Scene) -> None:
    worker, other = scene.worker(), scene.worker()
    await scene.submit(2)
    mine, gone = await scene.claim(worker, 2)
    await scene.ask(other)
    assert (await scene.ask(other, outcomes=[ended(mine)]))["fenced"] == [0]
    assert (await scene.ask(worker, outcomes=[ended(Held(mine.run_id, 7))]))["fenced"] == [0]
    assert (await scene.ask(worker, outcomes=[ended(Held(uuid7(), 1))]))["fenced"] == [-1]
    assert (await scene.ask(worker, outcomes=[ended(gone, "RETURNED"), ended(mine)]))["fenced"] == []
    retaken = (await scene.ask(other, free=1))["runs"]
    assert [run[:3] for run in retaken] == [(1, 3, 1)]
    assert (await scene.ask(worker, outcomes=[ended(gone)]))["fenced"] == [1]


async def progress_of_a_run_that_has_changed_hands(scene: Scene) -> None:
    worker, other = scene.worker(), scene.worker()
    await scene.submit(1)
    [held] = await scene.claim(worker)
    await scene.ask(other)
    word = Progress(held.run_id, held.fence, 1, 0.5)
    assert (await scene.ask(worker, progress=[word]))["fenced"] == []
    assert (await scene.ask(other, progress=[word]))["fenced"] == [0]


async def a_late_copy_is_stale(scene: Scene) -> None:
    worker = scene.worker()
    await scene.submit(3)
    [held] = await scene.claim(worker)
    report = [ended(held)]
    await scene.ask(worker, outcomes=report)
    worker.seq -= 1
    assert (await scene.ask(worker, outcomes=report))["code"] == "stale_exchange"
    worker.seq = 0
    assert (await scene.ask(worker, free=1, hello=worker.card))["code"] == "stale_exchange", "it would claim"
    worker.seq = 0
    assert (await scene.ask(worker, hello=worker.card))["status"] == 200, "it writes nothing"


async def a_lost_claim_is_handed_out_again(scene: Scene) -> None:
    worker = scene.worker()
    await scene.submit(4)
    held = await scene.claim(worker, 3)
    again = await scene.ask(worker, recover=True, inventory=held[:1], outcomes=[ended(held[1])], free=1)
    assert ([run[0] for run in again["runs"]], again["acked"]) == ([2], 1), "free is for the lost ones first"
    again = await scene.ask(worker, recover=True, inventory=held[:1], free=3)
    assert [run[0] for run in again["runs"]] == [2, 3]


async def who_is_not_known(scene: Scene) -> None:
    worker = scene.worker()
    assert (await scene.ask(worker, hello=None, free=1))["code"] == "unknown_worker"
    assert (await scene.ask(worker, hello=worker.card))["status"] == 200


async def who_does_not_prove_it(scene: Scene) -> None:
    worker = scene.worker()
    worker.secret = "its own"
    await scene.submit(1)
    [held] = await scene.claim(worker)
    for worker.secret in ("", "another"):
        assert (await scene.ask(worker, outcomes=[ended(held)]))["code"] == "wrong_incarnation"
        assert (await scene.ask(worker, hello=worker.card))["code"] == "wrong_incarnation"
    worker.secret = "its own"
    assert (await scene.ask(worker, outcomes=[ended(held)]))["acked"] == 1


async def who_has_stopped(scene: Scene) -> None:
    worker = scene.worker()
    await scene.ask(worker)
    await scene.ask(worker, stopped=True)
    assert (await scene.ask(worker, free=1))["code"] == "fenced"
    assert (await scene.ask(worker, hello=worker.card))["code"] == "fenced"


async def whose_incarnation_was_given_up(scene: Scene) -> None:
    worker = scene.worker()
    await scene.submit(1)
    [held] = await scene.claim(worker)
    await scene.side.lose(worker.worker_id)
    assert (await scene.ask(worker, outcomes=[ended(held)]))["code"] == "fenced"
    assert (await scene.ask(worker, recover=True, hello=worker.card))["code"] == "fenced"


async def a_run_is_to_stop(scene: Scene) -> None:
    worker = scene.worker()
    await scene.submit(1)
    [held] = await scene.claim(worker)
    waiting = await scene.start_waiting(worker)
    await scene.side.cancel(held.run_id)
    assert (await waiting)["stop"] == [0]
    assert (await scene.ask(worker))["stop"] == [], "it has been told"
    assert (await scene.ask(worker, outcomes=[ended(held, "CANCELLED")]))["fenced"] == []


async def a_worker_is_to_drain(scene: Scene) -> None:
    worker = scene.worker()
    waiting = await scene.start_waiting(worker, free=2)
    await scene.side.drain(worker.worker_id)
    assert (await waiting)["drain"]
    await scene.submit(1)
    told = await scene.ask(worker, free=1)
    assert (told["drain"], told["runs"]) == (True, [])
    assert (await scene.ask(worker, free=1, hello=worker.card))["drain"], "a hello does not undo it"
    assert not (await scene.ask(worker, draining=True))["drain"]
    assert (await scene.ask(worker, stopped=True, draining=True))["status"] == 200


async def a_worker_drains_by_itself(scene: Scene) -> None:
    worker = scene.worker()
    await scene.submit(2)
    [held] = await scene.claim(worker)
    told = await scene.ask(worker, draining=True, free=1, outcomes=[ended(held)])
    assert (told["runs"], told["drain"], told["acked"]) == ([], False, 1)
    assert (await scene.ask(worker, free=1))["drain"]


async def a_newer_exchange_releases_the_one_that_waits(scene: Scene) -> None:
    worker = scene.worker()
    waiting = await scene.start_waiting(worker, free=1)
    assert not (await scene.ask(worker, draining=True))["superseded"]
    assert (await waiting)["superseded"]


async def work_wakes_the_one_that_waits(scene: Scene) -> None:
    worker = scene.worker()
    waiting = await scene.start_waiting(worker, free=3)
    await scene.submit(2)
    assert len((await waiting)["runs"]) == 2


async def unstarted_runs_are_recalled_for_an_idle_worker(scene: Scene) -> None:
    busy, idle = scene.worker(), scene.worker()
    await scene.submit(3)
    held = await scene.claim(busy, 3)
    waiting = await scene.start_waiting(idle, free=1)
    assert (await scene.ask(busy, unstarted=2, wait_ms=LONG_POLL))["recall"] == 1, "as many as the idle one can take"
    assert (await scene.ask(busy, outcomes=[ended(held[2], "RETURNED")]))["acked"] == 1
    assert [run[0] for run in (await waiting)["runs"]] == [2]


SCRIPTS: list[Script] = [
    hello_claim_and_report,
    only_what_the_worker_offers,
    shares_and_room,
    the_same_outcome_twice,
    what_is_not_its_own_is_fenced,
    progress_of_a_run_that_has_changed_hands,
    a_late_copy_is_stale,
    a_lost_claim_is_handed_out_again,
    who_is_not_known,
    who_does_not_prove_it,
    who_has_stopped,
    whose_incarnation_was_given_up,
    a_run_is_to_stop,
    a_worker_is_to_drain,
    a_worker_drains_by_itself,
    a_newer_exchange_releases_the_one_that_waits,
    work_wakes_the_one_that_waits,
    unstarted_runs_are_recalled_for_an_idle_worker,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
async def test_the_double_answers_as_the_real_server_does(
    script: Script, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    real = Scene(Real(api, assembly, connection))
    await script(real)
    async with ExchangeServer(tell_again=BEAT) as server:
        headers = {"Authorization": "Bearer secret"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
            double = Scene(Double(server, client))
            await script(double)
    assert double.answers == real.answers
