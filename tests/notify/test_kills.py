"""Whatever is killed between a cause and its message: nothing is lost, and what is sent twice has the same id."""

from __future__ import annotations

import json
import random

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.operations.notify.alert_keeper import AlertKeeper
from mainspring.operations.notify.sender import NotificationSender
from mainspring.operations.notify.transport import NoTransport
from mainspring.roles.assembly import Assembly
from mainspring.store import alerts, notifications
from tests.operations.hand_worker import HandWorker, outcome
from tests.worker.http_service import a_service, answer

from .aging import age

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# The statements of a round and of an attempt. A process is killed before or after any of them.
STATEMENTS = (
    (alerts, "lock"), (alerts, "ended_runs"), (alerts, "move_seen"), (alerts, "raise_alerts"), (alerts, "due_alerts"),
    (alerts, "group_told"), (notifications, "insert"), (alerts, "set_alerts"), (notifications, "claim_due"),
    (notifications, "end"),
)  # fmt: skip


class Killed(BaseException):
    """As if the process were gone: its transaction is rolled back, and nothing of it runs any more."""


@pytest.mark.parametrize("seed", range(6))
async def test_every_failure_is_told_whatever_is_killed(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:  # fmt: skip
    dice = random.Random(seed)
    real = assembly.services.notification_sender
    worker = HandWorker(api)
    async with a_service(answer(200)) as receiver:
        body = {"kind": "webhook", "url": receiver.url(), "secret": "s"}
        await api.put("/v1/channels/oncall", json=body)
        rule = {"on": ["every_failure"], "to": ["oncall"], "group_wait": 0, "group_interval": "10s"}
        await api.put("/v1/rules/fails", json=rule)
        for number in range(8):
            made = await api.post("/v1/jobs", json={"task": "noop", "job_id": f"j{number}"})
            assert made.status_code == 201
            [order] = await worker.claim()
            await worker.report(outcome(order, "FAILED", error="boom", retry=False))
            module, name = dice.choice(STATEMENTS)
            await _killed_round(assembly, connection, monkeypatch, module, name, dice.random() < 0.5)
        for _ in range(3):
            await age(connection, 120)
            await assembly.services.alert_keeper.run_once()
            while await real.run_once():
                await real.settle()
    told: dict[str, set[str]] = {}
    for asked in receiver.asked:
        message = json.loads(asked.body)
        assert message["id"] == asked.headers["webhook-id"]
        told.setdefault(message["id"], set()).update(item["subject"] for item in message["items"])
    subjects = [subject for some in told.values() for subject in some]
    assert sorted(subjects) == [f"job j{number}" for number in range(8)]  # each once, by the ids of messages
    assert await connection.fetchval("select count(*) from mainspring.notifications where state <> 2") == 0


async def _killed_round(
    assembly: Assembly, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, module: object, name: str,
    before: bool,
) -> None:  # fmt: skip
    """A round of a process that is killed at this statement."""
    await age(connection, 120)
    statement = getattr(module, name)

    async def dying(*arguments: object, **more: object) -> object:
        if not before:
            await statement(*arguments, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, name, dying)
        keeper = AlertKeeper(assembly.store, SystemClock())
        real = assembly.services.notification_sender
        sender = NotificationSender(assembly.store, real._clock, real._transport or NoTransport())
        try:
            await keeper.run_once()
            await sender.run_once()
            await sender.settle()
        except Killed:
            pass
        for task in list(sender._tasks):
            task.cancel()
