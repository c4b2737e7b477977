"""A worker whose server says that only the database is away: ordinary runs live on for a while, exclusive ones end."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from mainspring.kernel.config import Timing
from mainspring.wire.exchange import RunOrder
from mainspring.worker.worker import Worker

from .a_worker import against_a_server as against
from .exchange_server import ExchangeServer, an_order
from .processes import alive, ended_soon, written

# No lease lapses because the machine stood still for two seconds, and who has a grace outlives everybody's patience.
TIMING = Timing(
    beat=0.2, kill=5.0, rescue=30.0, beat_slack=0.1, cut_off_grace=60.0, kill_grace=0.3, drain_grace=0.3
)  # fmt: skip
SHORT_GRACE = Timing(
    beat=0.2, kill=5.0, rescue=30.0, beat_slack=0.1, cut_off_grace=10.0, kill_grace=0.3, drain_grace=0.3
)  # fmt: skip
# Every end comes before anybody would take the runs over, and none before its time. That is counted from when the
# worker sent its last exchange, which may be a moment before it arrived.
LATE = TIMING.rescue - TIMING.beat_slack - TIMING.kill
MOMENT = 2.5


def against_a_server(test: Callable[[ExchangeServer, Worker], Awaitable[None]], *, timing: Timing) -> None:
    against(test, timing=timing, answered=timing.kill / 2)


def a_shell(folder: Path, name: str, *, exclusive: bool = False) -> RunOrder:
    """Writes its pid to `name`, and ends when there is a file `go`."""
    command = f"trap '' TERM; echo $$ > {folder}/{name}; until [ -e {folder}/go ]; do sleep 0.02; done"
    return an_order("shell", command=command, exclusive=exclusive)


async def pid_of(folder: Path, name: str) -> int:
    (line,) = await written(folder / name)
    return int(line)


async def exchanges_until(server: ExchangeServer, moment: float) -> None:
    await server.until(lambda: time.monotonic() >= moment)


def test_ordinary_runs_outlive_the_outage_and_exclusive_ones_are_stopped_and_reported_as_failed(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        ordinary, exclusive = a_shell(tmp_path, "ordinary"), a_shell(tmp_path, "exclusive", exclusive=True)
        server.submit(ordinary, exclusive)
        ordinary_pid, exclusive_pid = await pid_of(tmp_path, "ordinary"), await pid_of(tmp_path, "exclusive")
        server.begin_outage("store_down")
        assert await ended_soon(exclusive_pid)
        assert TIMING.kill - MOMENT < time.monotonic() - server.acknowledged < TIMING.kill + LATE
        await exchanges_until(server, server.acknowledged + TIMING.kill + 0.3)
        assert alive(ordinary_pid)
        assert not server.outcomes
        server.end_outage()
        outcome = await server.outcome_of(exclusive)
        assert (outcome.status, outcome.retry) == ("FAILED", True)
        assert (outcome.error or "").startswith("stopped: cut off from the database")
        (tmp_path / "go").touch()
        assert (await server.outcome_of(ordinary)).status == "SUCCESS"
        assert len(server.incarnations) == 1
        assert server.recorded_twice == []

    against_a_server(test, timing=TIMING)


def test_a_run_that_ended_during_the_outage_is_reported_after_it(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        order = a_shell(tmp_path, "ordinary")
        server.submit(order)
        pid = await pid_of(tmp_path, "ordinary")
        server.begin_outage("store_down")
        await exchanges_until(server, server.acknowledged + TIMING.kill + 0.1)
        (tmp_path / "go").touch()
        assert await ended_soon(pid)
        await server.until(lambda: server.requests[-1].outcomes)
        server.end_outage()
        assert (await server.outcome_of(order)).status == "SUCCESS"
        assert len(server.incarnations) == 1

    against_a_server(test, timing=TIMING)


def test_silence_ends_both_kinds_at_once(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(a_shell(tmp_path, "ordinary"), a_shell(tmp_path, "exclusive", exclusive=True))
        pids = await pid_of(tmp_path, "ordinary"), await pid_of(tmp_path, "exclusive")
        server.begin_outage("hang")
        for pid in pids:
            assert await ended_soon(pid)
        assert time.monotonic() - server.acknowledged < TIMING.kill + LATE
        server.end_outage()
        await server.until(lambda: len(server.incarnations) == 2)
        assert not server.outcomes

    against_a_server(test, timing=TIMING)


def test_silence_after_store_down_ends_the_ordinary_runs_too(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(a_shell(tmp_path, "ordinary"))
        pid = await pid_of(tmp_path, "ordinary")
        server.begin_outage("store_down")
        await exchanges_until(server, server.acknowledged + TIMING.kill + 0.1)
        assert alive(pid)
        server.begin_outage("hang")
        begun = time.monotonic()
        assert await ended_soon(pid)
        assert time.monotonic() - begun < TIMING.kill + LATE

    against_a_server(test, timing=TIMING)


def test_after_the_grace_the_ordinary_runs_end_too(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(a_shell(tmp_path, "ordinary"))
        pid = await pid_of(tmp_path, "ordinary")
        server.begin_outage("store_down")
        assert await ended_soon(pid)
        lived = time.monotonic() - server.acknowledged
        assert SHORT_GRACE.cut_off_grace - MOMENT < lived < SHORT_GRACE.cut_off_grace + LATE
        server.end_outage()
        await server.until(lambda: len(server.incarnations) == 2)
        assert not server.outcomes

    against_a_server(test, timing=SHORT_GRACE)


def test_an_incarnation_that_was_given_up_meanwhile_drops_everything(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(a_shell(tmp_path, "ordinary"), a_shell(tmp_path, "exclusive", exclusive=True))
        pids = await pid_of(tmp_path, "ordinary"), await pid_of(tmp_path, "exclusive")
        server.begin_outage("store_down")
        assert await ended_soon(pids[1])
        server.faults.append("fenced")
        server.end_outage()
        assert await ended_soon(pids[0])
        after = an_order()
        await server.until(lambda: len(server.incarnations) == 2)
        server.submit(after)
        assert (await server.outcome_of(after)).status == "SUCCESS"
        assert list(server.outcomes) == [after.run_id]

    against_a_server(test, timing=TIMING)


def test_an_idle_worker_sits_an_outage_out() -> None:
    async def test(server: ExchangeServer, _: Worker) -> None:
        server.begin_outage("store_down")
        await exchanges_until(server, server.acknowledged + TIMING.kill + 0.1)
        server.end_outage()
        order = an_order("shell", command="true", exclusive=True)
        server.submit(order)
        assert (await server.outcome_of(order)).status == "SUCCESS"
        assert len(server.incarnations) == 1

    against_a_server(test, timing=TIMING)
