"""A box answers like a server: the same calls are sent to both, and the results are compared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest

import mainspring.testing
from mainspring import AsyncClient, BadPayload, GiveUp, Mainspring, MainspringError, Retry
from mainspring.roles.assembly import Assembly
from mainspring.sdk.client.core import Call
from mainspring.sdk.testing.attempt import failure_of
from mainspring.wire.execution import Cause
from mainspring.wire.jobs import JobView
from mainspring.worker.execution.endings import ending_of_error
from tests.conftest import TOKEN

pytestmark = pytest.mark.anyio
OF_THE_MOMENT = {
    "job_id", "run_id", "created_at", "updated_at", "next_fire_at", "last_fired_for", "scheduled_for", "ready_at",
    "modified_time", "shard_id", "idempotency_key", "lag_from", "created_by", "health",
}  # fmt: skip


@pytest.fixture
async def server(assembly: Assembly) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient("http://127.0.0.1:8700", TOKEN, transport=transport, patience=0) as client:
        yield client


def plain(answer: Any) -> Any:
    """The value without what differs between servers."""
    found = msgspec.to_builtins(answer)
    return {
        name: plain(value) if name == "latest_run" and value else value
        for name, value in found.items()
        if name not in OF_THE_MOMENT
    }


JOBS: list[dict[str, Any]] = [
    {"task": "elsewhere"},
    {"task": "elsewhere", "payload": {"a": [1, 2.5, None], "b": {"c": "d"}}, "name": "a name", "queue": "heavy"},
    {"task": "elsewhere", "priority": "high", "timeout": "5m", "retries": 2, "labels": {"team": "bi"}, "owner": "ada"},
    {"task": "elsewhere", "at": "2038-01-19T03:14:07Z", "description": "later"},
    {
        "task": "elsewhere",
        "schedule": {"every": "15m", "anchor": "2026-01-01T00:00:00Z"},
        "overlap": "allow",
        "misfire": {"policy": "all", "grace": "1h"},
    },
    {"task": "elsewhere", "cron": "@daily", "timezone": "Europe/Berlin", "delivery": "at_most_once"},
    {"task": "elsewhere", "schedule": "manual", "retry": {"rules": [{"error": "ValueError", "then": "give_up"}]}},
    {"command": "echo hello", "env": {"A": "b"}, "limits": {"memory": "1GB"}, "run_timeout": "1h"},
]


@pytest.mark.parametrize("fields", JOBS, ids=range(len(JOBS)))
async def test_a_job_looks_the_same(server: AsyncClient, fields: Any) -> None:
    with mainspring.testing.run(Mainspring()) as box:
        # Without a given key the client generates a new one each time.
        theirs, ours = [await face.submit(**fields, idempotency_key="k") for face in (server, box.async_client)]
        assert plain(await box.async_client.job(ours.job_id)) == plain(await server.job(theirs.job_id))
        run, runs_run = await theirs.run(), await ours.run()
        assert (run is None) == (runs_run is None)
        if run is not None:
            assert plain(runs_run) == plain(run)


async def test_next_fires_are_the_same(server: AsyncClient) -> None:
    # They begin later: the two clocks may be read on both sides of a fire.
    schedule = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "start": "2030-01-01T00:00:00Z"}
    fields: Any = {"task": "elsewhere", "schedule": schedule}
    with mainspring.testing.run(Mainspring()) as box:
        theirs, ours = await server.submit(**fields), await box.async_client.submit(**fields)
        answers = [await face.upcoming(job.job_id, n=400) for face, job in ((server, theirs), (box.async_client, ours))]
    assert answers[0].fires == answers[1].fires


REFUSED: list[dict[str, Any]] = [
    {"task": "elsewhere", "priority": "urgent"},
    {"task": "elsewhere", "cron": "99 * * * *"},
    {"task": "elsewhere", "at": "2026-01-01T00:00:00"},
    {"payload": {}},
    {"task": "elsewhere", "job_id": "taken"},
    {"task": "elsewhere", "idempotency_key": "taken", "payload": {"another": "body"}},
]


@pytest.mark.parametrize("fields", REFUSED, ids=range(len(REFUSED)))
async def test_what_is_refused_is_refused_in_the_same_words(server: AsyncClient, fields: Any) -> None:
    with mainspring.testing.run(Mainspring()) as box:
        words = []
        for face in (server, box.async_client):
            await face.submit(task="elsewhere", job_id="taken", every="1h")
            await face.submit(task="elsewhere", idempotency_key="taken")
            with pytest.raises(MainspringError) as caught:
                await face.submit(**fields)
            words.append((type(caught.value), caught.value.code, caught.value.field, caught.value.detail))
    assert words[0] == words[1]


async def test_changes_lead_to_the_same_job(server: AsyncClient) -> None:
    with mainspring.testing.run(Mainspring()) as box:
        ends = []
        for face in (server, box.async_client):
            await face.submit(task="elsewhere", job_id="job", cron="@hourly", idempotency_key="k")
            await face.update_job("job", cron="0 9 * * *", priority="low")
            await face.pause("job")
            await face.update_job("job", description="paused")
            view: JobView = await face.resume("job")
            ends.append((plain(view), view.next_fire_at))
            ends.append(plain(await face.cancel_job("job")))
            with pytest.raises(MainspringError) as caught:
                await face.pause("job")
            ends.append((type(caught.value), caught.value.code))
    assert ends[:3] == ends[3:]


async def test_a_run_by_hand_that_overlaps_is_skipped_in_both(server: AsyncClient) -> None:
    with mainspring.testing.run(Mainspring()) as box:
        seen = []
        for face in (server, box.async_client):
            await face.submit(task="elsewhere", job_id="job", every=timedelta(hours=1))
            for _ in range(2):
                await face.run_now("job")
            page = await face.send(_runs_of("job"))
            seen.append([(run.status, run.reason) for run in page.runs])
    assert seen[0] == seen[1]
    assert seen[0][0] == ("SKIPPED", "overlap: an earlier run of this job was still alive")


async def test_a_run_by_hand_is_answered_alike_with_key_and_payload(server: AsyncClient) -> None:
    with mainspring.testing.run(Mainspring()) as box:
        seen = []
        for face in (server, box.async_client):
            await face.submit(task="elsewhere", job_id="job", overlap="allow", payload={"a": 1})
            first = await face.run_now("job", {"a": 2}, idempotency_key="k")
            assert await face.run_now("job", {"a": 2}, idempotency_key="k") == first
            with pytest.raises(MainspringError) as caught:
                await face.run_now("job", {"a": 3}, idempotency_key="k")
            page = await face.send(_runs_of("job"))
            assert [run.replay_of for run in page.runs] == [page.runs[1].run_id, None]
            seen.append((caught.value.code, [(run.status, run.payload) for run in page.runs]))
    assert seen[0] == seen[1]
    assert seen[0] == ("idempotency_key_reused", [("QUEUED", {"a": 2}), ("QUEUED", {"a": 1})])


class CardDeclined(LookupError):
    pass


ERRORS = [
    ValueError("no"), KeyError("card"), CardDeclined("no"), SystemExit(3), asyncio.CancelledError(), OSError(2, "gone"),
    Retry(), Retry("busy", after=5), Retry(after=timedelta(minutes=1)), GiveUp(), GiveUp("hopeless"),
    BadPayload("the payload does not fit", field="payload"),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_an_error_means_the_same_as_on_a_worker(error: BaseException) -> None:
    ours, theirs = failure_of(error), ending_of_error(error)
    assert (ours.wanted, ours.retry_after) == (theirs.retry, theirs.retry_after)
    assert (ours.cause or Cause()) == (theirs.cause or Cause())
    assert (theirs.error or "").startswith(ours.error)


def _runs_of(job_id: str) -> Call[Any]:
    from mainspring.sdk.client import calls

    return calls.job_runs(job_id)
