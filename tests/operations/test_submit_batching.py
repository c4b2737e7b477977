"""Jobs that are submitted at the same time share an insert. A refusal of one does not affect the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx
import msgspec
import pytest

from mainspring.domain.job import JobDefinition
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.operations.access.caller import Caller
from mainspring.operations.submit.submit_batching import SubmitBatcher
from mainspring.operations.submit.submit_repeat import InDoubt

pytestmark = pytest.mark.anyio

OURS, THEIRS = (Caller(TenantId(number), "admin", "a token", uuid7()) for number in (1, 2))


class Inserts:
    """Replaces the database. A test can make it hang or refuse a task."""

    def __init__(self) -> None:
        self.batches: list[tuple[Caller, list[str]]] = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.refused: dict[str, Exception] = {}
        self.cancelled = 0
        self.ids: dict[str, str] = {}

    async def __call__(self, caller: Caller, definitions: Sequence[JobDefinition], ids: Sequence[str]) -> None:
        tasks = [definition.task for definition in definitions]
        self.batches.append((caller, tasks))
        try:
            await self.may_go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        for task in tasks:
            if task in self.refused:
                raise self.refused[task]
        self.ids.update(zip(tasks, ids, strict=True))


def job(task: object) -> JobDefinition:
    return JobDefinition(task=str(task))


async def test_one_alone_is_inserted_alone() -> None:
    inserts = Inserts()
    assert await SubmitBatcher(inserts).add(OURS, job("a")) == inserts.ids["a"]
    assert inserts.batches == [(OURS, ["a"])]


async def test_those_of_one_turn_and_those_that_come_meanwhile_share_an_insert_and_get_their_own_ids() -> None:
    inserts = Inserts()
    inserts.may_go.clear()
    batcher = SubmitBatcher(inserts)
    first = [asyncio.create_task(batcher.add(OURS, job(n))) for n in range(10)]
    await turns()
    second = [asyncio.create_task(batcher.add(OURS, job(n))) for n in range(10, 20)]
    await turns()
    third = [asyncio.create_task(batcher.add(OURS, job(n))) for n in range(20, 40)]
    await turns()
    assert [len(tasks) for _, tasks in inserts.batches] == [10, 10]
    inserts.may_go.set()
    assert await asyncio.gather(*first, *second, *third) == [inserts.ids[str(n)] for n in range(40)]
    assert [len(tasks) for _, tasks in inserts.batches] == [10, 10, 20]


async def test_tenants_do_not_share_an_insert() -> None:
    inserts = Inserts()
    batcher = SubmitBatcher(inserts)
    await asyncio.gather(batcher.add(OURS, job("a")), batcher.add(THEIRS, job("b")), batcher.add(OURS, job("c")))
    assert sorted(inserts.batches, key=lambda batch: batch[0].tenant) == [(OURS, ["a", "c"]), (THEIRS, ["b"])]


async def test_tokens_do_not_share_an_insert_and_tenants_take_turns() -> None:
    inserts = Inserts()
    batcher = SubmitBatcher(inserts)
    other = msgspec.structs.replace(OURS, credential=uuid7())
    callers = (OURS, other, THEIRS, OURS, other)
    await asyncio.gather(*(batcher.add(caller, job(n)) for n, caller in enumerate(callers)))
    assert inserts.batches == [(OURS, ["0", "3"]), (THEIRS, ["2"]), (other, ["1", "4"])]


async def test_one_that_cannot_be_stored_is_refused_alone() -> None:
    inserts = Inserts()
    inserts.refused["13"] = ValueError("unlucky")
    batcher = SubmitBatcher(inserts)
    answers = await asyncio.gather(*(batcher.add(OURS, job(n)) for n in range(40)), return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, Exception)] == [13]
    assert str(answers[13]) == "unlucky"


async def test_when_the_database_is_away_nothing_is_tried_twice() -> None:
    inserts = Inserts()
    inserts.refused["1"] = ConnectionResetError("gone")
    batcher = SubmitBatcher(inserts)
    answers = await asyncio.gather(*(batcher.add(OURS, job(n)) for n in range(3)), return_exceptions=True)
    assert all(isinstance(answer, InDoubt) for answer in answers)
    assert all(isinstance(answer.__cause__, ConnectionResetError) for answer in answers)
    assert len(inserts.batches) == 1


async def test_an_insert_for_which_nobody_waits_any_more_makes_room() -> None:
    inserts = Inserts()
    inserts.may_go.clear()
    batcher = SubmitBatcher(inserts)
    hanging = []
    for n in range(3):  # two inserts run, and the third waits
        hanging.append(asyncio.create_task(batcher.add(OURS, job(n))))
        await turns()
    assert len(inserts.batches) == 2
    for request in hanging:
        request.cancel()
    await asyncio.wait(hanging)
    await turns()
    assert inserts.cancelled == 2
    inserts.may_go.set()
    assert await batcher.add(OURS, job("later")) == inserts.ids["later"]
    assert all("2" not in tasks for _, tasks in inserts.batches)


async def test_one_that_gives_up_does_not_end_the_insert_of_the_others() -> None:
    inserts = Inserts()
    inserts.may_go.clear()
    batcher = SubmitBatcher(inserts)
    requests = [asyncio.create_task(batcher.add(OURS, job(n))) for n in range(2)]
    await turns()
    requests[0].cancel()
    await turns()
    inserts.may_go.set()
    assert await requests[1] == inserts.ids["1"]


async def test_jobs_posted_at_once_over_http_are_all_there(api: httpx.AsyncClient) -> None:
    bodies = [{"task": f"task {n % 3}", "payload": {"n": n}, **({"name": "x"} if n % 2 else {})} for n in range(30)]
    answers = await asyncio.gather(*(api.post("/v1/jobs", json=body) for body in bodies))
    assert [answer.status_code for answer in answers] == [201] * 30
    for body, answer in zip(bodies, answers, strict=True):
        view = (await api.get(f"/v1/jobs/{answer.json()['job_id']}")).json()
        assert (view["task"], view["payload"]) == (body["task"], body["payload"])


async def turns() -> None:
    """Let everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)
