"""Logs on the server: appending, rejected chunks, reading and retention."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import httpx
import pytest

from mainspring.kernel.ids import TenantId
from mainspring.roles.assembly import Assembly
from mainspring.store import tokens
from mainspring.store.log_files import LogFiles, Stored, folder_of
from mainspring.upkeep.partition_maintainer import HistoryPruner
from mainspring.wire.logs import LogReceipt, LogShipment
from tests.logs.scene import IN_A_FOLDER, JSON, Follower, a_run, ask, chunk, claim_soon, encode, ship, text
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


# -- appending


async def test_chunks_in_order_are_the_log(worker: HandWorker) -> None:
    order = await a_run(worker)
    assert (await ship(worker, chunk(order, 0, b"one\n"))).stored == 1
    assert (await ship(worker, chunk(order, 4, b"two\n"), chunk(order, 8, b"three\n", end=True))).stored == 2
    assert await text(worker.api, order.run_id) == "one\ntwo\nthree\n"


async def test_a_repeated_chunk_is_acknowledged_and_changes_nothing(
    worker: HandWorker, connection: asyncpg.Connection
) -> None:
    order = await a_run(worker)
    for _ in range(2):
        assert (await ship(worker, chunk(order, 0, b"one\n"))) == LogReceipt(stored=1)
    assert (await ship(worker, chunk(order, 0, b"one\n"), chunk(order, 4, b"two\n"))) == LogReceipt(stored=2)
    assert await text(worker.api, order.run_id) == "one\ntwo\n"
    assert await connection.fetchval("select bytes from mainspring.run_logs") == 8
    await worker.report(outcome(order))
    assert (await ship(worker, chunk(order, 4, b"two\n"))) == LogReceipt(stored=1)


async def test_the_same_shipment_twice_at_the_same_time_counts_once(worker: HandWorker) -> None:
    order = await a_run(worker)
    receipts = await asyncio.gather(*(ship(worker, chunk(order, 0, b"one\n"), chunk(order, 4, b"2")) for _ in range(5)))
    assert receipts == [LogReceipt(stored=2)] * 5
    assert await text(worker.api, order.run_id) == "one\n2"


async def test_a_gap_is_refused(worker: HandWorker) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"one\n"))
    assert (await ship(worker, chunk(order, 5, b"three\n"))) == LogReceipt(gaps=[order.run_id])
    assert (await ship(worker, chunk(order, 2, b"xxxxxx"))) == LogReceipt(gaps=[order.run_id])
    assert await text(worker.api, order.run_id) == "one\n"
    assert (await ask(worker, chunk(order, 4, b"a"), chunk(order, 6, b"b"))).status_code == 422


async def test_a_chunk_that_is_too_large_is_refused(worker: HandWorker) -> None:
    order = await a_run(worker)
    answer = await ask(worker, chunk(order, 0, bytes(1024 * 1024 + 1)))
    assert (answer.status_code, answer.json()["field"]) == (422, "chunks[0].data")


async def test_a_stale_fence_another_worker_and_an_ended_run_are_fenced(
    worker: HandWorker, api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    order = await a_run(worker, retry={"max_attempts": 3, "base": "1ms", "backoff": "constant"})
    await ship(worker, chunk(order, 0, b"mine\n"))
    other = HandWorker(api)
    assert (await ship(other, chunk(order, 5, b"forged"))) == LogReceipt(fenced=[order.run_id])
    await worker.report(outcome(order, "FAILED", error="no"))
    assert (await ship(worker, chunk(order, 5, b"late"))) == LogReceipt(fenced=[order.run_id])
    (again,) = await claim_soon(worker)
    assert (await ship(worker, chunk(order, 5, b"late"))) == LogReceipt(fenced=[order.run_id])
    assert (await ship(worker, chunk(again, 0, b"second\n"))).stored == 1
    await worker.report(outcome(again))
    assert (await ship(worker, chunk(again, 7, b"late"))) == LogReceipt(fenced=[order.run_id])
    assert await text(api, order.run_id, attempt=1) == "mine\n"
    assert await text(api, order.run_id) == "second\n"
    assert await connection.fetchval("select sum(bytes) from mainspring.run_logs") == 12


async def test_many_runs_in_one_shipment_each_have_their_own_answer(worker: HandWorker) -> None:
    answer = await worker.api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 30)
    assert answer.status_code == 201
    orders = await worker.claim(30)
    gone, kept = orders[0], orders[1:]
    await worker.report(outcome(gone))
    receipt = await ship(worker, *(chunk(order, 0, f"run {order.run_id}".encode()) for order in orders))
    assert receipt == LogReceipt(stored=29, fenced=[gone.run_id])
    for order in kept:
        assert await text(worker.api, order.run_id) == f"run {order.run_id}"


async def test_what_was_put_and_not_counted_is_never_read_and_the_repeat_completes_it(
    worker: HandWorker, connection: asyncpg.Connection, log_files: LogFiles | None, tmp_path: Path
) -> None:
    """The database fails between the put and the commit."""
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"one\n"))
    await connection.execute(
        """create function mainspring.refuse() returns trigger language plpgsql as
           $$ begin raise exception 'injected'; end $$;
           create trigger refuse before update on mainspring.run_logs for each row execute function mainspring.refuse()
        """
    )
    assert (await ask(worker, chunk(order, 4, b"two\n"))).status_code == 500
    if log_files is not None:
        assert len([path for path in (tmp_path / "logs").rglob("*") if path.is_file()]) == 2
    else:
        assert await connection.fetchval("select count(*) from mainspring.log_chunks") == 1, "both or none"
    assert await text(worker.api, order.run_id) == "one\n"
    await connection.execute("drop trigger refuse on mainspring.run_logs")
    assert (await ship(worker, chunk(order, 4, b"two\n"))).stored == 1
    assert await text(worker.api, order.run_id) == "one\ntwo\n"


@IN_A_FOLDER
async def test_a_log_store_that_fails_is_a_503_and_nothing_counts(
    worker: HandWorker, connection: asyncpg.Connection, tmp_path: Path
) -> None:
    order = await a_run(worker)
    (tmp_path / "logs").rmdir()
    (tmp_path / "logs").write_text("a file where the folder should be")
    answer = await ask(worker, chunk(order, 0, b"one\n"))
    assert (answer.status_code, answer.json()["code"]) == (503, "log_store_down")
    assert str(tmp_path) not in answer.text, "clients do not learn where logs are stored"
    assert await connection.fetchval("select count(*) from mainspring.run_logs") == 0
    given_up = await a_run(worker)
    assert (await ship(worker, chunk(given_up, 0, b"", truncated=True, end=True))).stored == 1
    assert "truncated" in await text(worker.api, given_up.run_id)
    (tmp_path / "logs").unlink()
    assert (await ship(worker, chunk(order, 0, b"one\n"))).stored == 1


# -- reading


async def test_a_run_that_printed_nothing_has_an_empty_log(worker: HandWorker) -> None:
    order = await a_run(worker)
    assert await text(worker.api, order.run_id) == ""
    await worker.report(outcome(order))
    assert await text(worker.api, order.run_id) == ""
    assert await text(worker.api, order.run_id, attempt=1) == ""


async def test_unknown_runs_and_attempts_are_404(worker: HandWorker) -> None:
    order = await a_run(worker)
    for url in (
        "/v1/runs/0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11/logs",
        "/v1/runs/nonsense/logs",
        f"/v1/runs/{order.run_id}/logs?attempt=2",
        f"/v1/runs/{order.run_id}/logs?attempt=2&follow=true",
    ):
        answer = await worker.api.get(url)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), url
    assert (await worker.api.get(f"/v1/runs/{order.run_id}/logs?attempt=0")).status_code == 422


async def test_another_tenants_log_is_neither_read_nor_written(
    worker: HandWorker, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await tokens.insert(connection, TenantId(2), "ms_other", "admin", "other")
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"secret"))
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    headers = {"Authorization": "Bearer ms_other"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as stranger:
        for follow in ("false", "true"):
            answer = await stranger.get(f"/v1/runs/{order.run_id}/logs", params={"follow": follow})
            assert answer.status_code == 404
        body = encode(LogShipment(worker.worker_id, [chunk(order, 6, b"forged")]))
        answer = await stranger.post("/v1/exchange/logs", content=body, headers=JSON)
        assert answer.json() == {"fenced": [str(order.run_id)]}
        body = encode(LogShipment(worker.worker_id, [chunk(order, 0, b"secret")]))
        answer = await stranger.post("/v1/exchange/logs", content=body, headers=JSON)
        assert answer.json() == {"fenced": [str(order.run_id)]}
    assert await text(worker.api, order.run_id) == "secret"


async def test_a_truncated_log_says_so_at_its_end_and_in_a_header(worker: HandWorker) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"x" * 1024))
    await ship(worker, chunk(order, 1024, b"", truncated=True, end=True))
    answer = await worker.api.get(f"/v1/runs/{order.run_id}/logs")
    assert answer.headers["mainspring-log-truncated"] == "true"
    assert answer.text == "x" * 1024 + "\n[mainspring: output truncated at 1kiB]\n"


async def test_a_large_log_comes_whole_and_in_order(worker: HandWorker) -> None:
    order = await a_run(worker)
    data = b"".join(b"%07d\n" % number for number in range(400_000))
    for start in range(0, len(data), 200_000):
        await ship(worker, chunk(order, start, data[start : start + 200_000]))
    assert await text(worker.api, order.run_id) == data.decode()


async def test_bytes_that_the_store_lost_are_told_and_not_skipped_over(
    worker: HandWorker, log_files: LogFiles | None, connection: asyncpg.Connection
) -> None:
    order = await a_run(worker)
    for offset in (0, 4, 8):
        await ship(worker, chunk(order, offset, b"abc\n"))
    if log_files is not None:
        await log_files.remove(folder_of(1, order.run_id, order.attempt, order.fence), [Stored(4, 4)])
    else:
        await connection.execute("delete from mainspring.log_chunks where first_byte = 4")
    shown = await text(worker.api, order.run_id)
    assert shown == "abc\n\n[mainspring: 8 bytes of output are missing from the log store]\n"
    follower = Follower(worker.api, order.run_id)
    await worker.report(outcome(order))
    await follower.run()
    assert follower.output == shown


# -- retention


async def test_logs_expire_with_their_run_and_those_of_live_runs_stay(
    assembly: Assembly, worker: HandWorker, connection: asyncpg.Connection, log_files: LogFiles | None, tmp_path: Path
) -> None:
    orders = [await a_run(worker) for _ in range(4)]
    for order in orders:
        await ship(worker, chunk(order, 0, b"one\n"), chunk(order, 4, b"two\n"))
    old, living, fresh, quiet = orders
    await worker.report(outcome(old), outcome(fresh), outcome(quiet))
    await connection.execute("delete from mainspring.run_history where run_id = $1", old.run_id)
    await connection.execute(
        "update mainspring.run_logs set created_at = created_at - interval '31 d', "
        "updated_at = updated_at - interval '31 d' where run_id = any ($1)",
        [old.run_id, living.run_id, quiet.run_id],
    )
    await HistoryPruner(assembly.store, 30, assembly.services.logs.stores).run_once()
    left = {row["run_id"] for row in await connection.fetch("select run_id from mainspring.run_logs")}
    assert left == {living.run_id, fresh.run_id, quiet.run_id}, "`quiet` printed early and ended within the retention"
    if log_files is not None:
        assert {path.name for path in (tmp_path / "logs" / "1").iterdir()} == {str(run_id) for run_id in left}
    assert await text(worker.api, living.run_id) == "one\ntwo\n"
