"""A task that no worker offers: the submission is warned of it, and status, overview and why name it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.ids import TenantId
from mainspring.operations.read.verdict import verdict_of
from mainspring.operations.signatures import offers
from mainspring.roles.assembly import Assembly
from mainspring.store import workers
from mainspring.store.workers import Offer
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission waits for a busy machine too."""
    monkeypatch.setattr(offers, "_PATIENCE", 60.0)


WAITS = "its runs wait until such a worker starts"


async def worker_that_offers(api: httpx.AsyncClient, *tasks: str) -> HandWorker:
    worker = HandWorker(api)
    worker.card.tasks = list(tasks)
    await worker.hello()
    return worker


async def created(api: httpx.AsyncClient, path: str, body: Any, status: int = 201) -> dict[str, Any]:
    answer = await api.post(path, json=body)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


async def test_a_submission_names_what_no_worker_takes_and_the_task_that_is_spelt_alike(api: httpx.AsyncClient) -> None:
    await worker_that_offers(api, "send_mail")
    assert "warnings" not in await created(api, "/v1/jobs", {"task": "send_mail"})
    wrong = await created(api, "/v1/jobs", {"task": "sendmail"})
    assert wrong["warnings"] == ["no worker offers task sendmail; did you mean 'send_mail'?"]
    far = await created(api, "/v1/jobs", {"task": "send_mail", "queue": "far", "job_id": "far"})
    assert far["warnings"] == [f"no worker of queue far offers task send_mail; {WAITS}"]
    again = {"task": "send_mail", "queue": "far", "idempotency_key": "k"}
    assert (await created(api, "/v1/jobs", again))["warnings"] == far["warnings"]
    assert "warnings" not in await created(api, "/v1/jobs", again, 200)  # nothing new is stored
    labelled = await created(api, "/v1/jobs", {"task": "send_mail", "required_labels": {"zone": "b"}})
    lacks = "no worker that offers task send_mail has the required labels zone=b"
    assert labelled["warnings"] == [f"{lacks}; {WAITS}"]
    batch = [{"task": "send_mail"}, {"task": "xyz"}, {"task": "xyz"}, {"task": "abc"}]
    several = await created(api, "/v1/jobs:batch", {"jobs": batch})
    assert several["warnings"] == [f"no worker offers task {task}; {WAITS}" for task in ("abc", "xyz")]
    checked = await created(api, "/v1/jobs:validate", {"task": "sendmail"}, 200)
    assert checked["warnings"] == wrong["warnings"]


async def test_a_workflow_is_checked_step_by_step(api: httpx.AsyncClient) -> None:
    await worker_that_offers(api, "load")
    steps = [{"name": "load", "task": "load"}, {"name": "pay", "task": "laod"}]
    body = {"workflow_id": "orders", "steps": steps}
    warned = ["no worker offers task laod; did you mean 'load'?"]
    assert (await created(api, "/v1/workflows:validate", body, 200))["warnings"] == warned
    assert (await created(api, "/v1/workflows", body))["warnings"] == warned


async def test_a_workflow_run_says_what_its_steps_wait_for(
    assembly: Assembly, api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    scene = Scene(assembly, api, connection)
    await worker_that_offers(api, "load")
    workflow = await scene.create([{"name": "load", "task": "load"}, {"name": "pay", "task": "laod"}])
    run_id = await scene.begin(workflow)
    why = (await api.get(f"/v1/runs/{run_id}/why")).json()["why"]
    assert "0 of 2 have ended. 1 step waits: no worker offers task laod; did you mean 'load'? See GET" in why
    steps = (await api.get(f"/v1/workflow-runs/{run_id}")).json()["steps"]
    assert [step.get("reason") for step in steps] == [None, "no worker offers task laod"]
    again = await created(api, f"/v1/workflows/{workflow}:runNow", {}, 202)
    assert again["warnings"] == ["no worker offers task laod; did you mean 'load'?"]


async def test_the_overview_names_the_tasks_that_nobody_offers(api: httpx.AsyncClient) -> None:
    for _ in range(3):
        await created(api, "/v1/jobs", {"task": "sendmail"})
    await worker_that_offers(api, "send_mail")
    seen = (await api.get("/v1/insights/overview")).json()
    assert seen["status"] == "degraded"
    said = "3 runs wait: no worker offers task sendmail; did you mean 'send_mail'?"
    assert said in seen["problems"]
    assert verdict_of([said], [], [], datetime.now(UTC)).text == said  # a question has no full stop


async def test_a_refused_job_is_warned_of_nothing(api: httpx.AsyncClient) -> None:
    refused = problem(await api.post("/v1/jobs", json={"task": "nobody", "priority": "urgent"}))
    assert "warnings" not in refused


async def test_many_submissions_at_once_share_one_statement(
    assembly: Assembly, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await worker_that_offers(api, "send_mail")
    read, statements = workers.offers, list[int]()

    async def counted(connection: asyncpg.Connection, tenant: TenantId) -> list[Offer]:
        statements.append(tenant)
        return await read(connection, tenant)

    monkeypatch.setattr(workers, "offers", counted)
    answers = await asyncio.gather(*(created(api, "/v1/jobs", {"task": f"other{number}"}) for number in range(20)))
    assert all(len(answer["warnings"]) == 1 for answer in answers)
    assert len(statements) == 1


async def test_a_submission_is_answered_if_it_cannot_be_read_what_workers_offer(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> list[Offer]:
        raise ConnectionResetError

    monkeypatch.setattr(workers, "offers", away)
    assert "warnings" not in await created(api, "/v1/jobs", {"task": "sendmail"})
