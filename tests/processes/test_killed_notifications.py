"""A server is killed between failures and their messages: nothing is lost, and what is sent twice has the same id."""

from __future__ import annotations

import asyncio
import json
import random
import signal

import pytest

from tests.processes.cluster import SLOW, Cluster, eventually
from tests.worker.http_service import a_service, answer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KILLS = 3
EACH = 3  # all of them fit into one message


async def test_each_failure_is_told_under_one_id(cluster: Cluster) -> None:
    dice = random.Random(5)
    options = ["--notify-allow", "127.0.0.1"]
    server = await cluster.server(options=options)
    await cluster.worker()
    async with a_service(answer(200)) as receiver:
        channel = {"kind": "webhook", "url": receiver.url(), "secret": "s"}
        assert (await cluster.http.put("/v1/channels/oncall", json=channel)).status_code in (200, 201)
        rule = {"on": ["every_failure"], "to": ["oncall"], "group_wait": 0, "group_interval": "10s"}
        assert (await cluster.http.put("/v1/rules/fails", json=rule)).status_code in (200, 201)

        def told() -> dict[str, set[str]]:
            """The messages in which each job is told, by their ids."""
            found: dict[str, set[str]] = {}
            for asked in receiver.asked:
                message = json.loads(asked.body)
                assert message["id"] == asked.headers["webhook-id"]
                for item in message["items"]:
                    found.setdefault(item["subject"], set()).add(message["id"])
            return found

        for kill in range(KILLS):
            for number in range(EACH):
                await cluster.submit(command="false", retry={"max_attempts": 1}, job_id=f"j{kill * EACH + number}")
            await asyncio.sleep(dice.random() * 2)  # the moment of the kill is what varies
            server.send_signal(signal.SIGKILL)
            server.wait()
            server = await cluster.server(options=options)
        wanted = {f"job j{number}" for number in range(KILLS * EACH)}

        async def all_told() -> bool:
            return told().keys() >= wanted

        await eventually(
            all_told, 4 * SLOW, "each failure is told, also those that a killed server had claimed for 90 s"
        )
        assert {subject: len(ids) for subject, ids in told().items()} == dict.fromkeys(wanted, 1)
