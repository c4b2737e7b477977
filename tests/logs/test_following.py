"""Following a log: existing and new output, retries, the end, resuming, slow readers and revoked tokens."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.operations.logs.log_bytes import LogBytes
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store.log_files import LogFiles
from tests.eventually import PATIENCE
from tests.logs.scene import IN_A_FOLDER, Follower, a_run, chunk, claim_soon, ship
from tests.logs.sockets import on_a_socket
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio


# -- following


async def test_follow_tells_what_is_there_what_comes_and_the_end(assembly: Assembly, worker: HandWorker) -> None:
    async with on_a_socket(assembly) as api:
        order = await a_run(worker)
        await ship(worker, chunk(order, 0, b"one\n"))
        follower = Follower(api, order.run_id)
        reading = asyncio.create_task(follower.run())
        await until(lambda: follower.output == "one\n")
        await ship(worker, chunk(order, 4, b"two\n"))
        await until(lambda: follower.output == "one\ntwo\n")
        await worker.report(outcome(order))
        async with asyncio.timeout(PATIENCE):
            await reading
    assert follower.events[-1] == ("end", "1:8", {"status": "SUCCESS"})


async def test_follow_goes_on_through_a_retry_and_a_named_attempt_ends_with_it(
    assembly: Assembly, worker: HandWorker
) -> None:
    async with on_a_socket(assembly) as api:
        order = await a_run(worker, retry={"max_attempts": 3, "base": "1ms", "backoff": "constant"})
        follower, first_only = Follower(api, order.run_id), Follower(api, order.run_id)
        reading = asyncio.gather(follower.run(), first_only.run(attempt=1))
        await ship(worker, chunk(order, 0, b"first\n"))
        # A reader starts with the latest attempt. Both readers start before there is a second attempt.
        await until(lambda: follower.output == first_only.output == "first\n")
        await ship(worker, chunk(order, 6, b"", truncated=True, end=True))
        await worker.report(outcome(order, "FAILED", error="no"))
        (again,) = await claim_soon(worker)
        await ship(worker, chunk(again, 0, b"second\n"))
        await worker.report(outcome(again))
        async with asyncio.timeout(PATIENCE):
            await reading
    assert follower.names == ["output", "truncated", "attempt", "output", "end"]
    assert follower.events[2][1:] == ("2:0", {"attempt": 2})
    assert follower.output == "first\n\n[mainspring: output truncated at 6]\nsecond\n"
    assert first_only.names == ["output", "truncated", "end"]
    assert first_only.events[-1][2] == {"status": "FAILED"}


async def test_follow_begins_before_the_run_does(assembly: Assembly, worker: HandWorker) -> None:
    async with on_a_socket(assembly) as api:
        answer = await api.post("/v1/jobs", json={"task": "noop"})
        follower = Follower(api, answer.json()["job_id"])
        reading = asyncio.create_task(follower.run())
        (order,) = await worker.claim()
        await ship(worker, chunk(order, 0, b"hello\n"))
        await worker.report(outcome(order))
        async with asyncio.timeout(PATIENCE):
            await reading
    assert follower.names == ["output", "end"]


async def test_no_character_is_split_and_a_reader_resumes_where_it_was(worker: HandWorker) -> None:
    order = await a_run(worker)
    data = "naïve café €uro 🙂 end".encode()
    for offset in range(len(data)):
        await ship(worker, chunk(order, offset, data[offset : offset + 1]))
    await worker.report(outcome(order))
    whole = Follower(worker.api, order.run_id)
    await whole.run()
    assert whole.output == data.decode()
    assert "�" not in whole.output
    for index, (name, mark, _) in enumerate(whole.events):
        rest = Follower(worker.api, order.run_id, **{"Last-Event-ID": mark})
        await rest.run()
        expected = "".join(data["text"] for _, _, data in whole.events[index + 1 : -1]) if name == "output" else ""
        assert rest.output == expected
    bad = await worker.api.get(f"/v1/runs/{order.run_id}/logs?follow=true", headers={"Last-Event-ID": "nonsense"})
    assert bad.status_code == 422


async def test_output_that_is_not_text_is_shown_with_replacements(worker: HandWorker) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"\xff\xfe ok \xf0\x9f"))
    await worker.report(outcome(order))
    follower = Follower(worker.api, order.run_id)
    await follower.run()
    assert follower.output == "\ufffd\ufffd ok \ufffd"
    assert (await worker.api.get(f"/v1/runs/{order.run_id}/logs")).content == b"\xff\xfe ok \xf0\x9f"


async def test_output_that_arrived_at_another_server_is_seen(
    assembly: Assembly, worker: HandWorker, database_url: str, log_files: LogFiles | None
) -> None:
    there = await assemble(database_url, SystemClock(), scheduler=False, log_files=log_files)
    async with on_a_socket(there) as api:
        order = await a_run(worker)
        follower = Follower(api, order.run_id)
        reading = asyncio.create_task(follower.run())
        await ship(worker, chunk(order, 0, b"elsewhere\n"))
        await until(lambda: follower.output == "elsewhere\n")
        await worker.report(outcome(order))
        async with asyncio.timeout(PATIENCE):
            await reading
    await there.close()


async def test_a_reader_stays_while_the_database_is_away(assembly: Assembly, worker: HandWorker) -> None:
    async with on_a_socket(assembly) as api:
        order = await a_run(worker)
        follower = Follower(api, order.run_id)
        await ship(worker, chunk(order, 0, b"one\n"))
        reading = asyncio.create_task(follower.run())
        await until(lambda: follower.output == "one\n")
        for tell in assembly.pulse._listeners:  # the pulse calls these when PostgreSQL does not answer
            tell()
        await ship(worker, chunk(order, 4, b"two\n"))
        await worker.report(outcome(order))
        async with asyncio.timeout(PATIENCE):
            await reading
    assert (follower.output, follower.names[-1]) == ("one\ntwo\n", "end")


@IN_A_FOLDER
async def test_a_reader_who_is_slow_does_not_make_the_server_gather(assembly: Assembly, worker: HandWorker) -> None:
    order = await a_run(worker)
    for offset in range(0, 20_000_000, 1_000_000):
        await ship(worker, chunk(order, offset, b"x" * 1_000_000))
    asked = []

    class Counting(LogFiles):
        async def get(self, folder: str, offset: int) -> bytes | None:
            asked.append(offset)
            return await super().get(folder, offset)

    (files,) = assembly.services.logs.stores.files
    assembly.services.logs.bytes = LogBytes(Counting(files._objects, files.where))
    async with on_a_socket(assembly) as api:
        for params in ({"follow": "true"}, {}):
            asked.clear()
            async with api.stream("GET", f"/v1/runs/{order.run_id}/logs", params=params) as answer:
                async for _ in answer.aiter_bytes():
                    break
                with pytest.raises(TimeoutError):
                    await until(lambda: len(asked) > 12, seconds=0.5)
            assert asked


async def test_a_reader_that_goes_away_leaves_nothing_behind(assembly: Assembly, worker: HandWorker) -> None:
    async with on_a_socket(assembly) as api:
        order = await a_run(worker)
        follower = Follower(api, order.run_id)
        await ship(worker, chunk(order, 0, b"one\n"))
        reading = asyncio.create_task(follower.run())
        await until(lambda: follower.output == "one\n")
        assert assembly.services.logs.watch.runs == 1
        reading.cancel()
        await asyncio.wait([reading])
        await until(lambda: assembly.services.logs.watch.runs == 0)


async def test_a_reader_whose_token_is_revoked_reads_no_further(assembly: Assembly, worker: HandWorker) -> None:
    async with on_a_socket(assembly) as api:
        order = await a_run(worker)
        await ship(worker, chunk(order, 0, b"one\n"))
        made = (await api.post("/v1/tokens", json={"role": "admin", "name": "reader"})).json()
        follower = Follower(api, order.run_id, Authorization=f"Bearer {made['token']}")
        stays = Follower(api, order.run_id)
        reading = [asyncio.create_task(one.run()) for one in (follower, stays)]
        await until(lambda: follower.output == stays.output == "one\n")
        assert (await api.post(f"/v1/tokens/{made['token_id']}:revoke")).status_code == 200
        await ship(worker, chunk(order, 4, b"two\n"))
        await worker.report(outcome(order))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*reading)
    assert follower.names == ["output"]
    assert (stays.output, stays.names[-1]) == ("one\ntwo\n", "end")


async def test_a_server_that_stops_lets_its_readers_go_without_an_end(assembly: Assembly, worker: HandWorker) -> None:
    async with on_a_socket(assembly) as api:
        order = await a_run(worker)
        follower = Follower(api, order.run_id)
        await ship(worker, chunk(order, 0, b"one\n"))
        reading = asyncio.create_task(follower.run())
        await until(lambda: follower.output == "one\n")
        assembly.release_waiters()
        async with asyncio.timeout(PATIENCE):
            await reading
    assert follower.names == ["output"]


# -- places


async def test_a_tenant_that_follows_too_much_gives_places_up_and_continues_later(
    assembly: Assembly, worker: HandWorker, tenants: Tenants
) -> None:
    places = assembly.services.logs.watch.quota
    places.most, places.of_caller = 3, 3
    [other] = await tenants.add("other")
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"one\n"))
    run_id = (await other.post("/v1/jobs", json={"task": "noop"})).json()["job_id"]
    async with on_a_socket(assembly) as api:
        followers = [Follower(api, order.run_id) for _ in range(3)]
        reading = []
        for follower in followers:
            reading.append(asyncio.create_task(follower.run()))
            await until(lambda follower=follower: follower.output == "one\n")  # type: ignore[misc]
        refused = await api.get(f"/v1/runs/{order.run_id}/logs?follow=true")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        headers = {"Authorization": other.headers["Authorization"]}
        async with api.stream("GET", f"/v1/runs/{run_id}/logs?follow=true", headers=headers) as answer:
            assert answer.status_code == 200
            async with asyncio.timeout(PATIENCE):
                await reading[2]  # the newest one of the tenant that has the most
            assert len(places) == 3
            second = await api.get(f"/v1/runs/{run_id}/logs?follow=true", headers=headers)
            assert (second.status_code, second.json()["code"]) == (503, "streams_full")
        assert not reading[0].done() and not reading[1].done()
        await worker.report(outcome(order))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*reading)
    assert [follower.names[-1] for follower in followers] == ["end", "end", "output"]
    await until(lambda: len(places) == 0)
