"""A search that a server ends before its end: the clients go on, so an empty list means that there is nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import httpx
import pytest

from mainspring import AsyncClient, Client
from mainspring.operations.read.jobs import JobReader
from mainspring.operations.read.runs import RunReader
from mainspring.roles.assembly import Assembly
from mainspring.sdk.client import calls
from tests.cli.conftest import CannedServer
from tests.conftest import TOKEN
from tests.sdk.wire_samples import run

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(assembly: Assembly, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncClient]:
    """Of a server whose searches end after the first stretch, which has two jobs or runs."""
    for reader in (JobReader, RunReader):
        monkeypatch.setattr(reader, "budget", 0.0)
        monkeypatch.setattr(reader, "first_stretch", 2)
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient("http://127.0.0.1:8700", TOKEN, transport=transport, patience=0) as found:
        yield found


async def test_the_runs_of_a_rare_task_are_found_by_one_call(client: AsyncClient) -> None:
    await client.submit_batch([{"task": "rare"}, *[{"task": "noop"}] * 9, {"task": "rare"}, *[{"task": "noop"}] * 9])
    looked: list[tuple[datetime, int]] = []
    page = await client.runs(task="rare", label="a:b")
    assert (page.runs, page.next, page.searched_to) == ([], None, None)
    page = await client.search(calls.runs(queue="default", task="rare"), lambda to, found: looked.append((to, found)))
    assert [one.task for one in page.runs] == ["rare", "rare"]
    assert page.next is None and page.searched_to is None
    one = await client.runs(task="rare", limit=1)
    assert len(one.runs) == 1 and one.next is not None, "the rest is on the next page"
    two = await client.runs(task="rare", limit=1, cursor=one.next)
    assert len(two.runs) == 1 and two.runs[0].run_id < one.runs[0].run_id


async def test_jobs_and_workflows_are_found_by_one_call(client: AsyncClient) -> None:
    for n in range(9):
        await client.submit(task="noop", job_id=f"j{n}", cron="@daily", labels={"team": "rare"} if n == 0 else {})
    looked: list[int] = []
    page = await client.search(calls.jobs(label="team:rare"), lambda _, found: looked.append(found))
    assert [job.job_id for job in page.jobs] == ["j0"] and looked
    assert [job.job_id for job in (await client.jobs(label="team:rare")).jobs] == ["j0"]
    assert (await client.jobs(q="nobody")).next is None
    assert (await client.workflows(q="nobody")).next is None


def test_the_blocking_client_goes_on_too() -> None:
    server = CannedServer()
    server.start()
    pages = [
        {"runs": [], "next": "a", "searched_to": "2026-11-17T00:00:00Z"},
        {"runs": [run()], "next": "b", "searched_to": "2026-11-16T00:00:00Z"},
        {"runs": [], "next": None},
    ]
    server.says("GET /v1/runs", *pages)
    try:
        with Client(server.url, "secret") as client:
            found = client.runs(task="rare", limit=5)
    finally:
        server.stop()
    assert len(found.runs) == 1 and found.next is None and found.searched_to is None
    assert [query for _, query, _ in server.asked] == [
        "task=rare&limit=5", "task=rare&cursor=a&limit=5", "task=rare&cursor=b&limit=4",
    ]  # fmt: skip
