"""FEATURES 1.2: lists of jobs and of a job's runs, their filters and their pages."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def listed(api: httpx.AsyncClient, query: str) -> list[str]:
    answer = await api.get(f"/v1/jobs?{query}")
    assert answer.status_code == 200, answer.text
    return [job["job_id"] for job in answer.json()["jobs"]]


async def test_filters_by_status_label_queue_owner_and_text(api: httpx.AsyncClient) -> None:
    jobs: list[dict[str, Any]] = [
        {"job_id": "a", "name": "Nightly 100%_sure", "owner": "bi", "labels": {"team": "bi", "env": "prod"}},
        {"job_id": "b", "name": "nightly backup", "owner": "ops", "labels": {"team": "ops"}, "queue": "heavy"},
        {"job_id": "c", "name": "Hourly", "owner": "bi", "labels": {"team": "bi:west"}, "queue": "heavy"},
        {"job_id": "d-nightly", "task": "x", "priority": "high"},
    ]
    for job in jobs:
        made = await api.post("/v1/jobs", json={"task": "noop", "schedule": "@daily", **job})
        assert made.status_code == 201
    await api.post("/v1/jobs/b:pause")
    await api.delete("/v1/jobs/c")
    expected = {
        "": ["d-nightly", "b", "a"],
        "status=SCHEDULED": ["d-nightly", "a"], "status=scheduled": ["d-nightly", "a"],
        "status=Pending": ["d-nightly", "a"],
        "status=paused": ["b"], "status=Cancelled": ["c"], "status=completed": [],
        "status=paused,cancelled": ["c", "b"], "status=PAUSED&status=cancelled": ["c", "b"],
        "label=team:bi": ["a"], "label=team=bi": ["a"], "label=team:ops": ["b"],
        "label=team:bi:west&status=cancelled": ["c"], "label=nobody:x": [],
        "queue=heavy": ["b"], "queue=heavy&status=cancelled,paused": ["c", "b"], "queue=none": [],
        "queue=default": ["d-nightly", "a"],
        "owner=bi": ["a"], "owner=bi&status=cancelled": ["c"], "owner=BI": [],
        "q=nightly": ["d-nightly", "b", "a"], "q=NIGHTLY": ["d-nightly", "b", "a"], "q=100%25_s": ["a"], "q=%25": ["a"],
        "q=\\": [],
        "q=nightly&queue=heavy&status=paused&owner=ops&label=team:ops": ["b"],
    }  # fmt: skip
    assert {query: await listed(api, query) for query in expected} == expected


async def test_the_list_holds_what_has_yet_to_fire_or_will_fire_again_and_the_rest_when_asked_for(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    for job_id, schedule in (
        ("now", "now"), ("past", {"at": "2020-01-01T00:00:00Z"}), ("future", {"at": "2099-01-01T00:00:00Z"}),
        ("cron", "@daily"), ("manual", "manual"),
    ):  # fmt: skip
        await api.post("/v1/jobs", json={"job_id": job_id, "task": "noop", "schedule": schedule})
    assert await listed(api, "") == ["manual", "cron", "future", "past"]
    await fire_due(assembly, connection)
    assert await listed(api, "") == ["manual", "cron", "future"]
    assert (await api.get("/v1/jobs/past")).status_code == 200
    await api.delete("/v1/jobs/cron")
    assert await listed(api, "") == ["manual", "future"]
    assert await listed(api, "status=cancelled") == ["cron"]


async def test_pages_neither_skip_nor_repeat_while_jobs_come_and_go(api: httpx.AsyncClient) -> None:
    batch = [{"job_id": f"j{n:03}", "task": "noop", "schedule": "@daily", "owner": "x"} for n in range(60)]
    assert (await api.post("/v1/jobs:batch", json=batch)).status_code == 201  # all created in the same instant
    seen: list[str] = []
    url: str | None = "/v1/jobs?owner=x&limit=7"
    turn = 0
    while url is not None:
        answer = await api.get(url)
        assert len(answer.json()["jobs"]) <= 7
        seen += [job["job_id"] for job in answer.json()["jobs"]]
        link = answer.headers.get("link")
        assert (link is None) == (answer.json()["next"] is None)
        url = None
        if link is not None:
            assert link.startswith("</v1/jobs?") and link.endswith('>; rel="next"')
            url = link[1 : link.index(">")]
            assert dict(parse_qsl(urlsplit(url).query)) == {"owner": "x", "limit": "7", "cursor": answer.json()["next"]}
        turn += 1
        newer = {"job_id": f"new{turn}", "task": "noop", "schedule": "@daily", "owner": "x"}
        assert (await api.post("/v1/jobs", json=newer)).status_code == 201
        await api.patch(f"/v1/jobs/{seen[-1]}", json={"description": f"turn {turn}"})
    assert seen == [f"j{n:03}" for n in reversed(range(60))]


async def test_the_last_page_that_is_full_has_no_next(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "schedule": "@daily"} for _ in range(4)])
    first = await api.get("/v1/jobs?limit=2")
    second = await api.get("/v1/jobs", params={"limit": 2, "cursor": first.json()["next"]})
    assert len(second.json()["jobs"]) == 2
    assert second.json()["next"] is None and "link" not in second.headers


async def test_the_runs_of_a_job_are_an_array_newest_first_with_the_next_page_in_the_link(
    api: httpx.AsyncClient,
) -> None:
    await api.post("/v1/jobs", json={"job_id": "j", "task": "noop", "schedule": "manual", "overlap": "allow"})
    worker = HandWorker(api)
    made = [(await api.post("/v1/jobs/j:runNow")).json()["run_id"] for _ in range(8)]
    await worker.report(*(outcome(order) for order in await worker.claim(5)))
    seen: list[str] = []
    url: str | None = "/v1/jobs/j/runs?limit=3"
    while url is not None:
        answer = await api.get(url)
        assert isinstance(answer.json(), list)
        seen += [run["run_id"] for run in answer.json()]
        link = answer.headers.get("link")
        url = link[1 : link.index(">")] if link else None
        await api.post("/v1/jobs/j:runNow")
        if url is not None:
            await worker.report(*(outcome(order) for order in await worker.claim(1)))
    assert seen == made[::-1]


async def test_a_job_without_runs_has_an_empty_array(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"job_id": "j", "task": "noop", "schedule": "manual"})
    assert (await api.get("/v1/jobs/j/runs")).json() == []


async def test_jobs_are_found_by_their_task_and_by_the_type_of_their_schedule(api: httpx.AsyncClient) -> None:
    for job_id, fields in {
        "cron": {"task": "report", "cron": "@daily"},
        "interval": {"task": "report", "schedule": {"every": "1h"}},
        "future": {"task": "mail", "schedule": {"at": "2090-01-01T00:00:00Z"}},
        "now": {"task": "mail"},
        "manual": {"task": "mail", "schedule": "manual"},
    }.items():
        assert (await api.post("/v1/jobs", json={"job_id": job_id, **fields})).status_code == 201

    async def found(**filters: str) -> set[str]:
        seen, cursor = set(), None
        while True:
            answer = await api.get("/v1/jobs", params={**filters, **({"cursor": cursor} if cursor else {})})
            assert answer.status_code == 200, answer.text
            seen |= {job["job_id"] for job in answer.json()["jobs"]}
            if (cursor := answer.json()["next"]) is None:
                return seen

    assert await found(task="report") == {"cron", "interval"}
    assert await found(task="nothing") == set()
    assert await found(schedule_type="CRON") == {"cron"}
    assert await found(schedule_type="cron,interval") == {"cron", "interval"}
    assert await found(schedule_type="manual") == {"manual"}
    assert await found(schedule_type="interval", task="mail") == set()
    every = "scheduled,running,completed,failed,cancelled,paused"
    assert await found(schedule_type="immediate", status=every) == {"now"}
    assert await found(schedule_type="future,immediate", status=every, task="mail") == {"future", "now"}
    refused = (await api.get("/v1/jobs?schedule_type=corn")).json()
    assert (refused["status"], refused["field"], refused["hint"]) == (422, "schedule_type", "did you mean 'CRON'?")
