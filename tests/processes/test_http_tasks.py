"""HTTP tasks from submission to result, on real processes."""

from __future__ import annotations

import asyncio

import pytest

from tests.processes.cluster import SLOW, Cluster, eventually
from tests.worker.http_service import Writer, a_service, answer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_a_call_is_made_judged_logged_and_tried_again(cluster: Cluster) -> None:
    answers = (answer(503, b"not yet", retry_after="0"), answer(200, {"ok": True}))
    async with a_service(*answers) as service:
        await cluster.server()
        await cluster.worker("--http-allow", f"127.0.0.1:{service.port}")
        call = {"url": service.url(), "body": {"n": 1}, "success": {"json": "$.ok", "equals": True}}
        job_id = await cluster.submit(http=call, retry={"base": "10ms"})
        run = await cluster.ended(job_id)
        assert (run["status"], run["attempt_number"]) == ("SUCCESS", 2)
        assert (run["result"]["status"], run["result"]["body"]) == (200, {"ok": True})
        assert [asked.headers["mainspring-attempt"] for asked in service.asked] == ["1", "2"]
        assert len({asked.headers["idempotency-key"] for asked in service.asked}) == 1
        log = await cluster.http.get(f"/v1/runs/{run['run_id']}/logs")
        assert f"POST {service.url()} -> 200 in " in log.text
        assert {asked.headers["mainspring-run-id"] for asked in service.asked} == {run["run_id"]}


async def test_an_address_that_is_not_allowed_fails_at_once_and_for_good(cluster: Cluster) -> None:
    async with a_service(answer()) as service:
        await cluster.server()
        await cluster.worker("--http-allow", "10.0.0.0/8")
        run = await cluster.ended(await cluster.submit(http={"url": service.url()}))
        assert (run["status"], run["attempt_number"]) == ("FAILED", 1)
        assert "a loopback address; allow it with --http-allow 127.0.0.1" in run["error_message"]
        assert not service.connections


async def test_a_cancelled_call_hangs_up(cluster: Cluster) -> None:
    async def silent(writer: Writer) -> None:
        await asyncio.Event().wait()

    async with a_service(silent) as service:
        await cluster.server()
        await cluster.worker("--http-allow", "127.0.0.1")
        job_id = await cluster.submit(http={"url": service.url()})

        async def asked() -> bool:
            return bool(service.asked)

        await eventually(asked, SLOW, "the call arrived")
        assert (await cluster.http.delete(f"/v1/jobs/{job_id}")).status_code == 200
        assert (await cluster.ended(job_id))["status"] == "CANCELLED"
