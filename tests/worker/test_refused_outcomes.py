"""A worker and a real server that will not take something: one bad outcome, one too large, one bad word of progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.api.app import app_without_a_server
from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from mainspring.wire.exchange import Progress
from mainspring.worker.exchange.progress import ProgressReports
from mainspring.worker.exchange.server_client import ServerClient
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, Execute, NoteProgress, failed
from mainspring.worker.worker import Worker
from tests.conftest import TOKEN
from tests.logs.sockets import on_a_socket
from tests.operations.waiting import until

from .a_worker import QUICK, PatientWatchdog

pytestmark = pytest.mark.anyio

SLOTS = 200
BAD_ENDINGS: dict[str, Any] = {
    "status": AttemptEnding("DONE"),  # type: ignore[arg-type]
    "result": AttemptEnding(result=msgspec.Raw(b'{"a":')),
    "letters": AttemptEnding(result=msgspec.Raw(b'"\xff"')),
    "large": AttemptEnding(result=msgspec.Raw(b'"' + b"x" * 2_000_000 + b'"')),
}


class OtherLanguage:
    """An executor that ends runs as a worker in another language might, all of them together."""

    killable = True
    isolates = True
    has_processes = False

    def __init__(self, note_progress: NoteProgress) -> None:
        self.begun = 0
        self.go = asyncio.Event()
        self._note_progress = note_progress

    def offers(self) -> dict[str, Execute]:
        return dict.fromkeys(("good", "bad", "fails", "tells"), self._execute)

    def kill_all(self) -> None:
        self.go.set()

    async def _execute(self, attempt: Attempt) -> AttemptEnding:
        self.begun += 1
        task, payload = attempt.order.task, msgspec.json.decode(attempt.order.payload)["it"]
        if task == "tells":
            self._note_progress(attempt, 0.5, payload)
        await self.go.wait()
        if task == "bad":
            ending: AttemptEnding = BAD_ENDINGS[payload]
            return ending
        return failed("as usual", retry=False) if task == "fails" else AttemptEnding(result=attempt.order.payload)


class Boastful(ProgressReports):
    """Says too much of runs whose message is a boast."""

    def take(self, now: float) -> list[Progress]:
        words = super().take(now)
        for word in words:
            if word.message == "boast":
                word.fraction = 7.0
        return words


class Scene:
    def __init__(self, api: httpx.AsyncClient) -> None:
        self.api = api
        self.book = Boastful()
        self.executor = OtherLanguage(self.book.note)
        self.worker = Worker(
            ServerClient(str(api.base_url), TOKEN, timeout=60.0),
            PatientWatchdog(),
            [self.executor],
            name="under test",
            queues=["default"],
            slots=SLOTS,
            timing=QUICK,
            progress=self.book,
        )
        self.worker_id = self.worker.worker_id

    async def submit(self, *jobs: tuple[str, Any]) -> list[str]:
        """Jobs (task and payload) that have begun, and wait for `go`."""
        begun = self.executor.begun + len(jobs)
        requests = [{"task": task, "payload": {"it": payload}} for task, payload in jobs]
        answer = await self.api.post("/v1/jobs:batch", json=requests)
        assert answer.status_code == 201, answer.text
        await until(lambda: self.executor.begun == begun)
        return list(answer.json()["job_ids"])

    async def run(self, run_id: str) -> dict[str, Any]:
        answer = await self.api.get(f"/v1/runs/{run_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def ended(self, run_id: str) -> dict[str, Any]:
        async def has_ended() -> bool:
            return bool((await self.run(run_id))["end_time"])

        await until(has_ended)
        return await self.run(run_id)

    async def still_works(self) -> None:
        [job] = await self.submit(("good", "later"))
        run = await self.ended(job)
        assert (run["status"], run["executor_id"]) == ("SUCCESS", str(self.worker_id))
        assert self.worker.worker_id == self.worker_id, "it is the same incarnation"


@asynccontextmanager
async def a_scene(assembly: Assembly) -> AsyncIterator[Scene]:
    async with on_a_socket(assembly, watching=False) as api:
        scene = Scene(api)
        running = asyncio.create_task(scene.worker.run())
        try:
            yield scene
        finally:
            scene.executor.go.set()
            scene.worker.stop()
            scene.worker.stop()
            assert await running


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["status", "result", "letters"])
async def test_one_bad_outcome_among_fifty_good_ones_costs_its_own_run_alone(
    assembly: Assembly, connection: asyncpg.Connection, kind: str
) -> None:
    async with a_scene(assembly) as scene:
        jobs = [("good", number) for number in range(50)]
        runs = await scene.submit(*jobs[:20], ("bad", kind), *jobs[20:], ("fails", None))
        bad, fails = runs.pop(20), runs.pop()
        scene.executor.go.set()
        for number, run_id in enumerate(runs):
            run = await scene.ended(run_id)
            assert (run["status"], run["result"], run["attempt_number"]) == ("SUCCESS", {"it": number}, 1)
        run = await scene.ended(bad)
        assert (run["status"], run["attempt_number"]) == ("FAILED", 1)
        assert run["error_message"].startswith("the server refused this outcome: inva"), run["error_message"]
        assert (await scene.ended(fails))["error_message"] == "as usual"
        await scene.still_works()
        assert await connection.fetchval("select count(*) from mainspring.run_history") == 53
        assert await connection.fetchval("select count(*) from mainspring.runs") == 0
    letters = await connection.fetch("select run_id from mainspring.dead_letters")
    assert {str(row["run_id"]) for row in letters} == {bad, fails}


@pytest.mark.slow
async def test_a_report_that_is_too_large_goes_in_parts_and_what_is_too_large_alone_fails(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_method = app_without_a_server().table.find("/v1/exchange", "POST").route.by_method
    monkeypatch.setitem(of_method, "POST", replace(of_method["POST"], request_max_body_size=1_000_000))
    assembly = await assemble(database_url, SystemClock(), chance=lambda: 0.5)
    try:
        async with a_scene(assembly) as scene:
            text = "y" * 60_000
            runs = []
            for _ in range(4):  # the jobs, too, must not be too large together
                runs += await scene.submit(*[("good", text)] * 10)
            [bad] = await scene.submit(("bad", "large"))
            scene.executor.go.set()
            for run_id in runs:
                run = await scene.ended(run_id)
                assert (run["status"], run["result"]) == ("SUCCESS", {"it": text})
            run = await scene.ended(bad)
            assert run["status"] == "FAILED"
            assert run["error_message"].startswith("the server refused this outcome: payload_too_large")
            await scene.still_works()
    finally:
        await assembly.store.close()


async def test_a_bad_word_of_progress_is_dropped_and_the_others_are_heard(assembly: Assembly) -> None:
    async with a_scene(assembly) as scene:
        boasting, honest = await scene.submit(("tells", "boast"), ("tells", "half"))

        async def is_heard() -> bool:
            return (await scene.run(honest)).get("progress") is not None

        await until(is_heard)
        assert (await scene.run(boasting)).get("progress") is None
        scene.executor.go.set()
        for run_id in (boasting, honest):
            assert (await scene.ended(run_id))["status"] == "SUCCESS"
        await scene.still_works()
