"""Events and steps that wait, for the load: jobs that events start, emissions that are repeated and sent together, and
a workflow that sleeps and waits for an event, for a decision, and for another workflow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tests.cluster.event_book import EMIT
from tests.cluster.rules_waits import APPROVE, REJECT

if TYPE_CHECKING:
    from tests.cluster.load import Clients

MADE, PAID = "thing.made", "thing.paid"
_KEYS = ("", "a", "b", "c")
_RECENT = 20
JOBS: dict[str, dict[str, Any]] = {
    "on-each": {"schedule": {"event": MADE}},
    "on-some": {"schedule": {"event": MADE, "if": "payload.n >= 50"}},
    "on-even": {"schedule": {"event": MADE, "if": "payload.n % 2 == 0 && key != ''"}},
    "on-batch": {"schedule": {"event": MADE, "batch": {"size": 5, "wait": "2s"}}},
    "on-quiet": {"schedule": {"event": MADE, "debounce": "1s"}},
    "on-order": {
        "schedule": {"event": MADE},
        "concurrency": {"key": "payload.event.key", "limit": 1, "order": "strict"},
    },
}
PAUSED = ("on-some", "on-batch")
WAITS = "waits"
_STEPS: list[dict[str, Any]] = [
    {"name": "first", "task": "note", "retries": 0},
    {"name": "nap", "sleep": {"$parameter": "nap"}, "depends_on": ["first"]},
    {"name": "paid", "wait": {"event": PAID, "key": {"$parameter": "key"}, "timeout": "6s", "on_timeout": "continue"}},
    {"name": "gate", "wait": {"approval": "release", "timeout": "6s", "on_timeout": "skip"}, "depends_on": ["first"]},
    {"name": "inner", "workflow": "inner", "parameters": {"nap": {"$parameter": "nap"}}, "depends_on": ["first"]},
    {"name": "last", "task": "note", "retries": 0, "depends_on": ["nap", "paid", "gate", "inner"], "rule": "all_done"},
]
_INNER: list[dict[str, Any]] = [
    {"name": "rest", "sleep": {"$parameter": "nap"}},
    {"name": "note", "task": "note", "retries": 0, "depends_on": ["rest"]},
]


class EventLoad:
    """over_after: pauses for so many seconds; True if the load should stop."""

    def __init__(self, clients: Clients, chance: random.Random, over_after: Callable[[float], Awaitable[bool]]) -> None:
        self._clients = clients
        self._random = chance
        self._over_after = over_after
        self._sent: list[dict[str, Any]] = []

    async def start(self) -> None:
        for job_id, body in JOBS.items():
            keyed = {"task": "note.event", "job_id": job_id, "idempotency_key": job_id, **body}
            call = await self._clients.submit(keyed)
            assert call.result == "ok", call
        inner = {"workflow_id": "inner", "steps": _INNER, "parameters": {"nap": 0}, "overlap": "allow"}
        call = await self._clients.insist("workflow", "POST", "/v1/workflows", inner)
        assert call.result == "ok" or call.answer.get("code") == "job_exists", call
        body = {"workflow_id": WAITS, "steps": _STEPS, "parameters": {"key": "", "nap": 0}, "overlap": "allow"}
        call = await self._clients.insist("workflow", "POST", "/v1/workflows", body)
        assert call.result == "ok" or call.answer.get("code") == "job_exists", call

    async def stop(self) -> None:
        for job_id in PAUSED:
            await self._clients.steer(job_id, "resume")

    async def emit(self, number: int) -> None:
        """One event or several, some of them with ids that were sent before."""
        events = [self._event(f"{number}-{index}") for index in range(self._random.choice((1, 1, 1, 2, 4)))]
        if self._sent and self._random.random() < 0.3:
            again = self._random.choice(self._sent)
            events.append(again if self._random.random() < 0.5 else {**again, "payload": {"n": 99}})
        self._sent = [*self._sent, *events][-_RECENT:]
        await self._send(*events)

    def _event(self, event_id: str) -> dict[str, Any]:
        key = self._random.choice(_KEYS)
        event: dict[str, Any] = {"name": MADE, "id": event_id, "payload": {"n": self._random.randrange(100)}}
        return {**event, "key": key} if key else event

    async def _send(self, *events: dict[str, Any]) -> None:
        if len(events) == 1:
            await self._clients.insist(EMIT, "POST", "/v1/events", events[0])
        else:
            await self._clients.insist(EMIT, "POST", "/v1/events:batch", {"events": list(events)})

    async def steer(self) -> None:
        """Pause jobs while events come, and resume them."""
        while not await self._over_after(self._random.uniform(1, 4)):
            job_id = self._random.choice(PAUSED)
            await self._clients.steer(job_id, "pause")
            await self._over_after(self._random.uniform(0.2, 2))
            await self._clients.steer(job_id, "resume")

    async def wait(self, number: int) -> None:
        """A workflow run whose event comes before its wait, meanwhile, at its timeout, or never. Two people decide."""
        key = f"order-{number}"
        emits = asyncio.ensure_future(self._pay(key, self._random.choice((0.0, 0.1, 0.5, 2.0, 5.9, None))))
        nap = self._random.choice((0, "300ms", "1s"))
        body = {"idempotency_key": f"waits-{number}", "parameters": {"key": key, "nap": nap}}
        await self._over_after(self._random.choice((0.0, 0.1)))
        call = await self._clients.insist("workflow run", "POST", f"/v1/workflows/{WAITS}:runNow", body, target=WAITS)
        if call.result == "ok":
            await self._decide(call.answer["run_id"])
        await emits

    async def _pay(self, key: str, after: float | None) -> None:
        if after is not None:
            await self._over_after(after)
            await self._send({"name": PAID, "key": key, "id": f"paid-{key}", "payload": {"n": 1}})

    async def _decide(self, flow_id: str) -> None:
        await self._over_after(self._random.uniform(0.0, 2.0))
        found = await self._clients.call("steps", "GET", f"/v1/workflow-runs/{flow_id}/steps?name=gate")
        if found.result != "ok" or not found.answer.get("steps") or self._random.random() < 0.2:
            return
        run_id = found.answer["steps"][0]["run_id"]
        verbs = self._random.choices((APPROVE, REJECT), k=self._random.choice((1, 2, 2)))
        await asyncio.gather(*(self._one_decision(verb, run_id) for verb in verbs))

    async def _one_decision(self, verb: str, run_id: str) -> None:
        path = f"/v1/approvals/{run_id}:{verb.split()[0]}"
        await self._clients.call(verb, "POST", path, {"reason": "the load"}, target=run_id)
