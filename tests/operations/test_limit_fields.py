"""Two jobs that differ in one field of their limits behave differently."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def statuses(api: httpx.AsyncClient, *jobs: dict[str, Any]) -> list[str]:
    """What becomes of these jobs, submitted in this order."""
    found = []
    for job in jobs:
        answer = await api.post("/v1/jobs", json={"task": "noop", **job})
        assert answer.status_code == 201, answer.text
        found.append(answer.json()["job_id"])
    return [(await api.get(f"/v1/jobs/{job_id}/status")).json()["latest_run"]["status"] for job_id in found]


def account(number: int, **limit: Any) -> dict[str, Any]:
    return {"payload": {"account": number}, "concurrency": {"limit": 1, **limit}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param([{"concurrency": 1}] * 2, [{"concurrency": 2}] * 2, id="limit"),
        pytest.param([account(1), account(2)], [account(n, key="payload.account") for n in (1, 2)], id="key"),
        pytest.param([{"concurrency": 1}] * 2, [{}] * 2, id="concurrency"),
        pytest.param(
            [{"job_id": f"j{n}", "concurrency": {"limit": 1, "per": "task"}} for n in (1, 2)],
            [{"job_id": f"k{n}", "concurrency": {"limit": 1, "per": "job"}} for n in (1, 2)],
            id="per",
        ),
    ],
)  # fmt: skip
async def test_the_first_two_take_turns_and_the_others_run_together(
    api: httpx.AsyncClient, connection: asyncpg.Connection, one: list[dict[str, Any]], other: list[dict[str, Any]]
) -> None:
    assert await statuses(api, *one) == ["QUEUED", "HELD"]
    await connection.execute("truncate mainspring.runs, mainspring.limits, mainspring.limit_keys")
    other = [{**job, "task": "another"} for job in other]  # the server remembers what it has declared for a while
    assert await statuses(api, *other) == ["QUEUED", "QUEUED"]


@pytest.mark.parametrize(("order", "second"), [("priority", 2), ("strict", 1)])
async def test_order_says_whether_priority_counts(api: httpx.AsyncClient, order: str, second: int) -> None:
    limit = {"limit": 1, "order": order}
    ids = [
        (await api.post("/v1/jobs", json={"task": "noop", "concurrency": limit, "priority": word})).json()["job_id"]
        for word in ("normal", "low", "high")
    ]
    worker = HandWorker(api)
    [first] = await worker.claim(1)
    await worker.report(outcome(first))
    [following] = await worker.claim(1)
    assert str(following.run_id) == ids[second]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("skip", ["QUEUED", "SKIPPED"]),
        ("queue", ["QUEUED", "HELD"]),
        ("allow", ["QUEUED", "QUEUED"]),
        ("cancel_previous", ["CANCELLED", "QUEUED"]),
    ],
)
async def test_each_overlap_rule(api: httpx.AsyncClient, rule: str, expected: list[str]) -> None:
    body = {"task": "noop", "job_id": "nightly", "schedule": "manual", "overlap": rule}
    assert (await api.post("/v1/jobs", json=body)).status_code == 201
    runs = [(await api.post("/v1/jobs/nightly:runNow")).json()["run_id"] for _ in range(2)]
    assert [(await api.get(f"/v1/runs/{run}")).json()["status"] for run in runs] == expected


async def test_a_limit_of_a_task_counts_all_its_jobs_until_a_job_gives_its_own(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api, tasks=("charge",))
    worker.card.signatures = {"charge": {"x-mainspring-options": {"concurrency": 1}}}  # type: ignore[assignment]
    await worker.hello()
    jobs: list[dict[str, Any]] = [{"job_id": "a"}, {"job_id": "b"}, {}, {"job_id": "c", "concurrency": {"limit": 1}}]
    assert await statuses(api, *({"task": "charge", **job} for job in jobs)) == ["QUEUED", "HELD", "HELD", "QUEUED"]


@pytest.mark.parametrize(
    ("field", "declared"),
    [
        ("concurrency", 1),
        ("rate_limit", "1/h"),
        ("circuit_breaker", {"failures": 1}),
        ("unique", {"by": ["task"]}),
    ],
)
async def test_null_is_what_the_task_declares_and_false_is_none(
    api: httpx.AsyncClient, field: str, declared: Any
) -> None:
    worker = HandWorker(api, tasks=("charge",))
    worker.card.signatures = {"charge": {"x-mainspring-options": {field: declared}}}  # type: ignore[assignment]
    await worker.hello()
    shown = []
    for given in (None, False):
        answer = await api.post("/v1/jobs", json={"task": "charge", "delay": "1h", field: given})
        assert answer.status_code == 201
        view = (await api.get(f"/v1/jobs/{answer.json()['job_id']}")).json()
        shown.append(bool(view.get(field)))
    assert shown == [True, False]
    refused = await api.post(
        "/v1/jobs", json={"task": "charge", "delay": "1h", field: [] if field != "unique" else True}
    )
    assert (refused.status_code, refused.json()["field"]) == (422, field)
    if field == "unique":
        return
    job = answer.json()["job_id"]
    for given, expected in ((None, True), (False, False)):
        changed = await api.patch(f"/v1/jobs/{job}", json={field: given})
        assert (changed.status_code, bool(changed.json().get(field))) == (200, expected), changed.text
