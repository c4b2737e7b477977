"""Runs that are handed off have what claimed runs have: secrets, the token that created them, and keys of payloads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.kernel.config import Timing
from mainspring.operations.secrets.master_keys import new_key
from mainspring.roles.assembly import Assembly, assemble
from mainspring.wire.protocol import TAKES_SECRETS
from tests.eventually import PATIENCE
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_hand_off import handed_off
from tests.operations.test_long_poll import PatientRequest, until_it_waits
from tests.operations.test_secrets import ENV, VALUE, Keys
from tests.store.rows import live

pytestmark = pytest.mark.anyio

NAMING = {"command": "true", "env": ENV}


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
async def assembly(database_url: str, monkeypatch: pytest.MonkeyPatch, keys: Keys) -> AsyncIterator[Assembly]:
    """A server with master keys and slow heartbeats."""
    monkeypatch.setattr("mainspring.api.bodies._decode_exchange", msgspec.json.Decoder(PatientRequest).decode)
    monkeypatch.setattr("mainspring.operations.exchange.patience._SECONDS", 60.0)
    slow = Timing(
        beat=120.0, kill=240.0, rescue=360.0, exclusive_kill=240.0, exclusive_rescue=360.0, base_kill=240.0,
        base_rescue=360.0, cut_off_grace=240.0,
    )  # fmt: skip
    put_together = await assemble(database_url, SystemClock(), timing=slow, chance=lambda: 0.5, read_keys=keys.read)
    yield put_together
    await put_together.close()


async def asking(
    api: httpx.AsyncClient, assembly: Assembly, protocol: int = TAKES_SECRETS
) -> tuple[HandWorker, asyncio.Task[httpx.Response]]:
    """A worker whose exchange waits for the runs of a lane that the server knows."""
    worker = HandWorker(api, tasks=("shell",))
    worker.card.protocol = protocol
    await api.post("/v1/jobs", json={"command": "true"})
    [order] = await worker.claim()
    await worker.report(outcome(order))
    return worker, await ask_again(assembly, worker)


async def ask_again(assembly: Assembly, worker: HandWorker) -> asyncio.Task[httpx.Response]:
    async with until_it_waits(assembly.long_polls, worker.worker_id):
        return asyncio.create_task(worker.ask(free=5, wait_ms=100_000))


async def submit(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json=fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def shown(api: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    run = (await api.get(f"/v1/jobs/{job_id}")).json()["latest_run"]
    return dict((await api.get(f"/v1/runs/{run['run_id']}")).json())


async def test_it_brings_its_secrets(api: httpx.AsyncClient, assembly: Assembly) -> None:
    await api.put("/v1/secrets/db-password", json={"value": VALUE})
    worker, asked = await asking(api, assembly)
    before = handed_off()
    job_id = await submit(api, **NAMING)
    [order] = (await asked).json()["runs"]
    assert (
        order["job_id"] == job_id and order["secrets"] == {"values": {"db-password": VALUE}} and handed_off() > before
    )
    [again] = (await worker.exchange(recover=True)).runs
    assert again.secrets is not None and again.secrets.values == {"db-password": VALUE}


@pytest.mark.parametrize("why", ["deleted", "no key", "old worker"])
async def test_a_run_that_does_not_get_its_secret_is_not_handed_out(
    api: httpx.AsyncClient, assembly: Assembly, keys: Keys, connection: asyncpg.Connection, why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The exchange goes on waiting, and the next run goes to it."""
    await api.put("/v1/secrets/db-password", json={"value": VALUE})
    worker, asked = await asking(api, assembly, TAKES_SECRETS - (why == "old worker"))
    if why == "no key":
        data_keys, keys.text = assembly.services.exchanger._transaction._secrets._data_keys, new_key()
        data_keys._cached.clear()
        await data_keys._master_keys.reload()
    if why == "deleted":  # between the check and the hand-off
        checked = assembly.services.submitter._secrets.check

        async def and_deleted(*args: Any) -> None:
            await checked(*args)
            await connection.execute("delete from mainspring.secrets")

        monkeypatch.setattr(assembly.services.submitter._secrets, "check", and_deleted)
    before = handed_off()
    job_id = await submit(api, **NAMING, delivery="at_most_once")
    async with asyncio.timeout(PATIENCE):
        while (found := await shown(api, job_id)).get("error_message") is None:
            await asyncio.sleep(0)
    assert handed_off() - before == 1 and not asked.done()
    if why == "deleted":
        assert (found["status"], found["error_message"]) == (
            "FAILED",
            "the secret 'db-password' does not exist any more",
        )
        assert await live(connection) == []
    else:
        assert found["status"] in ("QUEUED", "SCHEDULED"), "another server or worker may run it"
        [row] = await live(connection)
        assert (row["attempt"], row["worker_id"]) == (0, None)
    monkeypatch.undo()
    other = await submit(api, command="true")
    [order] = (await asked).json()["runs"]
    assert order["job_id"] == other and VALUE not in asked.result().text
    assert [run.job_id for run in (await worker.exchange(recover=True)).runs] == [other]


async def test_created_by_and_keys_of_payloads_are_those_of_a_claimed_run(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api, tasks=("noop",))
    worker.card.protocol = TAKES_SECRETS
    job = {"task": "noop", "payload": {"account": 42}, "search": ["account"]}
    claimed = await submit(api, **job)
    await worker.claim()
    asked, before = await ask_again(assembly, worker), handed_off()
    handed = await submit(api, **job)
    assert [order["job_id"] for order in (await asked).json()["runs"]] == [handed] and handed_off() - before == 1
    one, other = (row["created_by"] for row in await live(connection))
    assert one == other is not None
    found = (await api.get("/v1/runs", params={"payload.account": "42"})).json()["runs"]
    assert {run["job_id"] for run in found} == {claimed, handed}
