"""Whatever happened to jobs: `GET /v1/jobs?status=X` has, over all its pages, exactly the jobs that say X."""

from __future__ import annotations

from random import Random
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.transitions import JobStatus, RunState
from mainspring.operations.read.jobs import JobReader
from mainspring.roles.assembly import Assembly
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from mainspring.wire.exchange import RunOrder
from tests.api.test_job_status import listed, make
from tests.operations.firing import fire_due, let_backoff_pass, make_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

EVERY = ",".join(JobStatus)
SCHEDULES: list[Any] = [
    "now",
    "now",
    {"at": "2020-01-01T00:00:00Z"},
    {"at": "2099-01-01T00:00:00Z"},
    "@daily",
    "manual",
]


class Histories:
    """Does something random to random jobs."""

    def __init__(self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, seed: int) -> None:
        self.api, self.assembly, self.connection, self.random = api, assembly, connection, Random(seed)
        self.worker = HandWorker(api)
        self.jobs: list[str] = []
        self.held: list[RunOrder] = []

    async def step(self) -> None:
        acts = [
            (6, self.submit), (4, self.fire), (5, self.claim), (6, self.report), (1, self.back_off), (1, self.expire),
            (2, self.run_now), (3, self.retry), (1, self.cancel), (1, self.pause), (1, self.resume),
        ]  # fmt: skip
        [act] = self.random.choices([act for _, act in acts], [weight for weight, _ in acts])
        await act()

    async def submit(self) -> None:
        chosen = f"{self.random.choice('aB-_')}{len(self.jobs)}" if self.random.random() < 0.5 else None
        more = {"misfire": {"policy": "skip"}} if self.random.random() < 0.2 else {}
        if self.random.random() < 0.1:
            more["expires_in"] = "1h"  # type: ignore[assignment]
        self.jobs.append(
            await make(
                self.api,
                chosen,
                schedule=self.random.choice(SCHEDULES),
                retry={"max_attempts": self.random.choice([1, 1, 2]), "base": "1h"},
                overlap=self.random.choice(["skip", "allow"]),
                labels={"side": self.random.choice(["left", "right"])},
                **more,
            )
        )

    async def fire(self) -> None:
        if self.jobs and self.random.random() < 0.5:
            await make_due(self.connection, self.random.choice(self.jobs))
        await fire_due(self.assembly, self.connection)

    async def claim(self) -> None:
        reply = await self.worker.exchange(free=self.random.randint(1, 4), hello=self.worker.card)
        self.held += reply.runs

    async def report(self) -> None:
        self.random.shuffle(self.held)
        for _ in range(min(len(self.held), self.random.randint(1, 3))):
            end = self.random.choice(["SUCCESS", "SUCCESS", "FAILED", "FAILED", "CANCELLED"])
            await self.worker.report(outcome(self.held.pop(), end))

    async def back_off(self) -> None:
        await let_backoff_pass(self.connection)

    async def expire(self) -> None:
        await self.connection.execute(
            "update mainspring.runs set expires_at = clock_timestamp() where expires_at is not null"
        )
        await DeadlineSweeper(self.assembly.store, self.assembly.signals).run_once()

    async def run_now(self) -> None:
        await self._post(":runNow")

    async def pause(self) -> None:
        await self._post(":pause")

    async def resume(self) -> None:
        await self._post(":resume")

    async def cancel(self) -> None:
        if self.jobs:
            await self.api.delete(f"/v1/jobs/{self.random.choice(self.jobs)}")

    async def retry(self) -> None:
        ended = await self.connection.fetch("select run_id from mainspring.run_history order by run_id")
        if ended:
            await self.api.post(f"/v1/runs/{self.random.choice(ended)['run_id']}:retry")

    async def _post(self, verb: str) -> None:
        if self.jobs:
            answer = await self.api.post(f"/v1/jobs/{self.random.choice(self.jobs)}{verb}")
            assert answer.status_code < 500, answer.text

    async def check(self) -> None:
        shown = {job_id: (await self.api.get(f"/v1/jobs/{job_id}")).json() for job_id in self.jobs}
        for job_id, view in shown.items():
            brief = (await self.api.get(f"/v1/jobs/{job_id}/status")).json()
            assert brief["status"] == view["status"]
        await self._compare(
            shown, [f"status={status}" for status in JobStatus], lambda view: f"status={view['status']}"
        )
        await self._compare(
            shown,
            [f"status={status}&label=side:{side}" for status in JobStatus for side in ("left", "right")],
            lambda view: f"status={view['status']}&label=side:{view['labels']['side']}",
        )
        await self._compare(
            shown,
            [f"status={EVERY}&latest_run={state}" for state in RunState if state not in ("WAITING", "HELD")],
            lambda view: view["latest_run"] and f"status={EVERY}&latest_run={view['latest_run']['status']}",
        )
        assert sorted(await listed(self.api, f"status={EVERY}&limit=2")) == sorted(self.jobs)

    async def _compare(self, shown: dict[str, Any], queries: list[str], query_of: Any) -> None:
        for query in queries:
            found = await listed(self.api, f"{query}&limit={self.random.randint(1, 4)}")
            expected = [job_id for job_id, view in shown.items() if query_of(view) == query]
            assert sorted(found) == sorted(expected), query


@pytest.mark.parametrize("seed", range(2))
async def test_lists_by_status_have_exactly_the_jobs_that_show_it(
    api: httpx.AsyncClient,
    assembly: Assembly,
    connection: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    if seed % 2:  # pages end wherever the time is over
        monkeypatch.setattr(JobReader, "budget", 0.0)
        monkeypatch.setattr(JobReader, "first_stretch", 2)
    histories = Histories(api, assembly, connection, seed)
    for _ in range(70):
        await histories.step()
    await histories.check()


async def test_pages_neither_skip_nor_repeat_while_jobs_are_submitted_and_fire(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    due = [await make(api, schedule={"at": "2020-01-01T00:00:00Z"}) for _ in range(6)]
    made = due + [await make(api) for _ in range(6)]
    seen: list[str] = []
    url: str | None = f"/v1/jobs?status={EVERY}&limit=3"
    while url is not None:
        answer = await api.get(url)
        seen += [one["job_id"] for one in answer.json()["jobs"]]
        link = answer.headers.get("link")
        url = link[1 : link.index(">")] if link else None
        await make(api)
        await make(api, schedule="@daily")
        if len(seen) == 3:
            await fire_due(assembly, connection)
        await worker.report(*(outcome(order) for order in await worker.claim()))
    assert seen == made[::-1]
