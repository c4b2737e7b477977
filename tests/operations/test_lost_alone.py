"""A run that is lost again by the death of a worker on which it was alone is a dead letter. Other losses are not blamed
on it: of a worker that fell silent, that was asked to stop, or that held other runs too."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.wire.exchange import RunOrder
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_losses import lose

pytestmark = pytest.mark.anyio

REASON = "lost 2 times, the last time while it was alone on its worker (killed by SIGKILL); see whether the task ends"


class Scene:
    def __init__(self, api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
        self.api = api
        self.connection = connection
        self.worker = HandWorker(api)

    async def submit(self, count: int = 1, **fields: Any) -> None:
        for _ in range(count):
            answer = await self.api.post("/v1/jobs", json={"task": "noop", **fields})
            assert answer.status_code == 201, answer.text

    async def claim(self, count: int = 1) -> list[RunOrder]:
        """Claim for a new worker, even what waits after a loss."""
        await self.connection.execute("update mainspring.runs set ready_at = clock_timestamp()")
        self.worker = HandWorker(self.api)
        self.worker.secret = "5e" * 32
        return await self.worker.claim(count)

    async def notice(self, cause: str | None = "crashed", **fields: Any) -> httpx.Response:
        body = {"worker_id": str(self.worker.worker_id), "secret": self.worker.secret, "exit": "killed by SIGKILL"}
        if cause is not None:
            body["cause"] = cause
        proof = {WORKER_HEADER: str(self.worker.worker_id), SECRET_HEADER: str(self.worker.secret)}
        return await self.api.post("/v1/exchange/gone", json={**body, **fields}, headers=proof)

    async def dies(self, cause: str | None = "crashed") -> None:
        assert (await self.notice(cause)).status_code == 200

    async def run(self, order: RunOrder) -> dict[str, Any]:
        found: dict[str, Any] = (await self.api.get(f"/v1/runs/{order.run_id}")).json()
        return found

    async def dead(self) -> list[str]:
        return [letter["run_id"] for letter in (await self.api.get("/v1/dead-letters")).json()["dead_letters"]]


@pytest.fixture
def scene(api: httpx.AsyncClient, connection: asyncpg.Connection) -> Scene:
    return Scene(api, connection)


@pytest.mark.parametrize("cause", ["crashed", "killed"])
@pytest.mark.parametrize("first", ["a death", "silence"])
async def test_the_second_loss_alone_is_a_dead_letter_before_max_losses(scene: Scene, cause: str, first: str) -> None:
    await scene.submit(max_losses=100)
    [order] = await scene.claim()
    if first == "silence":
        await lose(scene.connection, scene.worker)
    else:
        await scene.dies(cause)
    assert (await scene.run(order))["losses"] == 1
    assert await scene.dead() == []
    [order] = await scene.claim()
    await scene.dies(cause)
    shown = await scene.run(order)
    assert (shown["status"], shown["losses"], shown["error_message"]) == ("FAILED", 2, "worker lost")
    assert str(shown["reason"]).startswith(REASON)
    assert await scene.dead() == [str(order.run_id)]


async def test_the_first_loss_of_a_run_that_was_alone_is_retried(scene: Scene) -> None:
    await scene.submit(retries=0)
    [order] = await scene.claim()
    await scene.dies()
    assert (await scene.run(order))["status"] == "QUEUED"


@pytest.mark.parametrize("loss", ["silence", "asked to stop", "its lease ended"])
async def test_a_worker_that_does_not_die_by_itself_says_nothing_about_the_run(scene: Scene, loss: str) -> None:
    """A machine that vanishes, a deployment, a network that is cut: up to max_losses."""
    await scene.submit()
    for losses in (1, 2, 3):
        [order] = await scene.claim()
        assert not order.alone
        if loss == "silence":
            await lose(scene.connection, scene.worker)
        elif loss == "asked to stop":
            await scene.dies(cause=None)
        else:
            await scene.worker.report(outcome(order, "RETURNED", error="its lease ended", ran_ms=9000.0))
        shown = await scene.run(order)
        assert (shown["end_time"], shown["losses"]) == (None, losses)


async def test_a_run_is_not_blamed_for_the_death_of_a_worker_that_held_others_too(scene: Scene) -> None:
    await scene.submit(2)
    for losses in (1, 2, 3):
        orders = await scene.claim(2)
        await scene.dies()
        assert [(await scene.run(order))["losses"] for order in orders] == [losses] * 2
    assert await scene.dead() == []


async def test_others_that_another_transaction_has_locked_count_too(scene: Scene) -> None:
    await scene.submit(2)
    await scene.claim(2)
    await scene.dies()
    first, second = await scene.claim(2)
    gate = scene.connection.transaction()
    await gate.start()
    await scene.connection.execute("select from mainspring.runs where run_id = $1 for update", second.run_id)
    assert (await scene.notice()).status_code == 503  # it is sent again
    assert ((await scene.run(first))["losses"], (await scene.run(first))["end_time"]) == (2, None)
    await gate.rollback()
    await scene.dies()  # now one run is left, which was not alone either
    assert ((await scene.run(second))["losses"], (await scene.run(second))["end_time"]) == (2, None)


async def test_a_worker_that_was_lost_by_its_silence_before_its_notice_arrives_is_not_counted(scene: Scene) -> None:
    await scene.submit()
    await scene.claim()
    await scene.dies()
    [order] = await scene.claim()
    await scene.connection.execute(
        "update mainspring.workers set state = 3, ended_at = clock_timestamp() where worker_id = $1",
        scene.worker.worker_id,
    )
    await scene.dies()
    assert (await scene.run(order))["losses"] == 2
    assert await scene.dead() == []


async def test_after_a_crash_a_run_is_to_begin_alone_until_an_attempt_has_ended_in_another_way(scene: Scene) -> None:
    await scene.submit(2, retry={"max_attempts": 5, "base": "10ms"})

    async def marks() -> list[bool]:
        return [order.alone for order in await scene.claim(2)]

    assert await marks() == [False, False]
    await scene.dies("killed")  # somebody has killed the process that was started, which no run does
    assert await marks() == [False, False]
    await scene.dies("crashed")
    orders = await scene.claim(2)
    assert [order.alone for order in orders] == [True, True]
    await scene.worker.report(*(outcome(order, "RETURNED") for order in orders))  # they have not begun
    orders = await scene.claim(2)
    assert [order.alone for order in orders] == [True, True]
    await scene.worker.report(*(outcome(order, "FAILED", error="no") for order in orders))
    assert await marks() == [False, False]
    await scene.dies("crashed")
    assert await marks() == [True, True]
    await lose(scene.connection, scene.worker)  # this time it fell silent
    assert (await scene.dead()) != []  # the fourth loss of each


@pytest.mark.parametrize("limit", [{"concurrency": {"limit": 1}}, {"rate": "100/s"}])
async def test_a_run_with_a_limit_is_marked_too(scene: Scene, limit: dict[str, Any]) -> None:
    await scene.submit(**limit)
    [order] = await scene.claim()
    await scene.dies()
    [order] = await scene.claim()
    assert (order.losses, order.alone) == (1, True)
