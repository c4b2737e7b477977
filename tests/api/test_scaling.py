"""The scaling signal that autoscalers read, and the figures of single jobs."""

from __future__ import annotations

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.kernel.ids import uuid7
from mainspring.operations.read import queues
from mainspring.store import leases
from mainspring.store.pool import Store
from mainspring.wire.insights import Scaling
from tests.api.test_insights import folded
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio
_decode = msgspec.json.Decoder(Scaling).decode


async def test_autoscalers_read_slots_wanted_and_the_backlog_of_each_queue(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store
) -> None:
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "queue": "mail"}] * 70)
    worker = HandWorker(api, queues=["mail"])
    orders = await worker.claim(10)
    await worker.report(*(outcome(order, ran_ms=10_000.0) for order in orders))
    await folded(store, connection)
    worker.card = msgspec.structs.replace(worker.card, slots=4)
    await worker.hello()
    await worker.claim(4)
    await api.post("/v1/jobs", json={"task": "noop", "queue": "video"})

    seen = _decode((await api.get("/v1/insights/scaling")).content)
    [mail, video] = seen.queues
    assert (mail.queue, mail.waiting, mail.running, mail.free, mail.workers) == ("mail", 56, 4, 0, 1)
    assert mail.duration == 10.0 and mail.backlog_s == pytest.approx(56 * 10 / 4)
    # 56 runs of 10 s within 60 s, and those that run or, by the rate of the last minute, keep busy what they kept.
    assert mail.slots_wanted == 14
    assert (video.queue, video.slots_wanted, video.duration) == ("video", 1, None)
    assert (seen.slots_wanted, seen.backlog_s) == (15, mail.backlog_s)

    # The paths that docs/scaling.md gives to KEDA.
    answer = (await api.get("/v1/insights/scaling?queue=mail&within=600")).json()
    assert answer["slots_wanted"] == 5 and [each["queue"] for each in answer["queues"]] == ["mail"]
    lines = (await api.get("/metrics")).text.splitlines()
    assert 'mainspring_queue_slots_wanted{queue="mail"} 14.0' in lines
    assert f'mainspring_queue_backlog_seconds{{queue="mail"}} {mail.backlog_s}' in lines
    assert 'mainspring_queue_workers{queue="video"} 0.0' in lines
    assert "mainspring_ready 0.0" in lines or "mainspring_ready 1.0" in lines

    await api.put("/v1/queues/mail", json={"concurrency": 6})
    assert (await api.get("/v1/insights/scaling?queue=mail")).json()["slots_wanted"] == 6
    await api.post("/v1/queues/mail:pause", json={})
    assert (await api.get("/v1/insights/scaling?queue=mail")).json()["slots_wanted"] == 4, "it keeps what runs"


async def test_a_queue_that_the_list_leaves_out_has_its_own_answer(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "queue": name} for name in ("a", "z")])
    monkeypatch.setattr(queues, "MOST_QUEUES", 1)
    every = (await api.get("/v1/insights/scaling")).json()
    assert [each["queue"] for each in every["queues"]] == ["a"] and every["left_out"] >= 1
    own = (await api.get("/v1/insights/scaling?queue=z")).json()
    assert (own["slots_wanted"], [each["queue"] for each in own["queues"]]) == (1, ["z"])
    assert own.get("left_out", 0) == 0


async def test_a_bad_request_for_it_is_refused(api: httpx.AsyncClient) -> None:
    for query in ("within=0", "within=nan", "within=x", "within=1e9", "queue="):
        assert (await api.get(f"/v1/insights/scaling?{query}")).status_code == 422, query
    answer = await api.get("/v1/insights/scaling?queue=not-yet")
    assert answer.json()["slots_wanted"] == 0 and answer.json()["queues"] == []


async def test_a_token_for_metrics_reads_it_and_one_narrowed_by_queues_its_own(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs:batch", json=[{"task": "noop", "queue": name} for name in ("mine", "yours")])
    made = (await api.post("/v1/tokens", json={"name": "keda", "role": "metrics"})).json()["token"]
    keda = {"Authorization": f"Bearer {made}"}
    assert (await api.get("/v1/insights/scaling", headers=keda)).status_code == 200
    assert (await api.get("/v1/insights/overview", headers=keda)).status_code == 403
    made = (await api.post("/v1/tokens", json={"name": "team", "role": "viewer", "queues": ["mine"]})).json()["token"]
    team = {"Authorization": f"Bearer {made}"}
    seen = (await api.get("/v1/insights/scaling", headers=team)).json()
    assert [each["queue"] for each in seen["queues"]] == ["mine"] and seen["slots_wanted"] == 1
    yours = await api.get("/v1/insights/scaling?queue=yours", headers=team)
    assert yours.json()["queues"] == [] and yours.json()["slots_wanted"] == 0


async def test_jobs_that_the_scrape_names_have_figures_and_no_others(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await leases.take(connection, node := uuid7(), list(range(128)), 60)
    await leases.node_seen(connection, node, "here")
    job = {"task": "noop", "schedule": "manual", "max_retries": 0}
    for name in ("nightly", 'odd"\\\n', "never", "other"):
        answer = await api.post("/v1/jobs", json={"job_id": name, **job})
        if name.startswith("odd"):
            assert answer.status_code == 422, "an id with a line break would break the text"
    worker = HandWorker(api)
    for status, ran in (("SUCCESS", 1000.0), ("FAILED", 2000.0), ("FAILED", 3000.0)):
        await api.post("/v1/jobs/nightly:runNow", json={})
        [order] = await worker.claim(1)
        await worker.report(outcome(order, status, ran_ms=ran, **({"error": "no"} if status == "FAILED" else {})))
    text = (await api.get("/metrics?gauges=yes&job=nightly&job=never&job=unknown&job=nightly")).text
    lines = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if "job_id=" in line}
    assert lines['mainspring_job_failures_in_a_row{job_id="nightly"}'] == 2
    assert lines['mainspring_job_last_duration_seconds{job_id="nightly"}'] == 3
    ended = lines['mainspring_job_last_end_timestamp_seconds{job_id="nightly"}']
    assert 0 < lines['mainspring_job_last_success_timestamp_seconds{job_id="nightly"}'] <= ended
    assert lines['mainspring_job_failures_in_a_row{job_id="never"}'] == 0
    assert not [line for line in lines if "other" in line or "unknown" in line]
    assert "mainspring_job_last" not in (await api.get("/metrics?gauges=yes")).text
    many = "&".join(f"job=j{number}" for number in range(101))
    refused = await api.get(f"/metrics?gauges=yes&{many}")
    assert refused.status_code == 422 and refused.json()["field"] == "job"
