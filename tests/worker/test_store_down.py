"""A worker whose server says that only the database is away: ordinary runs live on for a while, exclusive ones end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.wire.exchange import RunOrder
from mainspring.worker.worker import Worker

from .a_worker import against_a_server as against
from .a_worker import pass_time, passes_until, passes_until_reported
from .exchange_server import ExchangeServer, an_order
from .processes import alive, ended_soon, written

TIMING = Timing(
    beat=0.2, base_kill=5.0, base_rescue=30.0, beat_slack=0.1, cut_off_grace=60.0, kill_grace=0.3, drain_grace=0.3
)  # fmt: skip
SHORT_GRACE = Timing(
    beat=0.2, base_kill=5.0, base_rescue=30.0, beat_slack=0.1, cut_off_grace=10.0, kill_grace=0.3, drain_grace=0.3
)  # fmt: skip
# The lease counts from when the worker sent its last exchange. That one may have waited at the server for so long.
MOMENT = 0.3


def against_a_server(
    test: Callable[[ExchangeServer, Worker, ManualClock], Awaitable[None]], *, timing: Timing = TIMING
) -> None:
    clock = ManualClock()
    answered = timing.base_kill / 2
    against(lambda server, worker: test(server, worker, clock), timing=timing, answered=answered, clock=clock)


def a_shell(folder: Path, name: str, *, exclusive: bool = False) -> RunOrder:
    """Writes its pid to `name`, and ends when there is a file `go`."""
    command = f"trap '' TERM; echo $$ > {folder}/{name}; until [ -e {folder}/go ]; do sleep 0.02; done"
    return an_order("shell", command=command, exclusive=exclusive)


async def pid_of(folder: Path, name: str) -> int:
    (line,) = await written(folder / name)
    return int(line)


async def pass_until(clock: ManualClock, moment: float) -> None:
    await pass_time(clock, moment - clock.monotonic())


def test_ordinary_runs_outlive_the_outage_and_exclusive_ones_are_stopped_and_reported_as_failed(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker, clock: ManualClock) -> None:
        ordinary, exclusive = a_shell(tmp_path, "ordinary"), a_shell(tmp_path, "exclusive", exclusive=True)
        server.submit(ordinary, exclusive)
        ordinary_pid, exclusive_pid = await pid_of(tmp_path, "ordinary"), await pid_of(tmp_path, "exclusive")
        server.begin_outage("store_down")
        await pass_until(clock, server.acknowledged + TIMING.base_kill - 0.1)
        assert alive(exclusive_pid)
        await pass_time(clock, MOMENT)
        assert await ended_soon(exclusive_pid)
        await pass_until(clock, server.acknowledged + TIMING.cut_off_grace - 0.1)
        assert alive(ordinary_pid)
        assert not server.outcomes
        server.end_outage()
        await pass_time(clock, 1.0)
        outcome = await server.outcome_of(exclusive)
        assert (outcome.status, outcome.retry) == ("FAILED", True)
        assert (outcome.error or "").startswith("stopped: cut off from the database")
        (tmp_path / "go").touch()
        assert await ended_soon(ordinary_pid)
        await passes_until_reported(server, clock, ordinary)
        assert server.outcomes[ordinary.run_id].status == "SUCCESS"
        assert len(server.incarnations) == 1
        assert server.recorded_twice == []

    against_a_server(test)


def test_a_run_that_ended_during_the_outage_is_reported_after_it(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker, clock: ManualClock) -> None:
        order = a_shell(tmp_path, "ordinary")
        server.submit(order)
        pid = await pid_of(tmp_path, "ordinary")
        server.begin_outage("store_down")
        await pass_until(clock, server.acknowledged + TIMING.base_kill + 0.1)
        (tmp_path / "go").touch()
        assert await ended_soon(pid)
        await passes_until(clock, lambda: server.requests[-1].outcomes)
        server.end_outage()
        await passes_until_reported(server, clock, order)
        assert server.outcomes[order.run_id].status == "SUCCESS"
        assert len(server.incarnations) == 1

    against_a_server(test)


def test_silence_ends_both_kinds_at_once(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker, clock: ManualClock) -> None:
        server.submit(a_shell(tmp_path, "ordinary"), a_shell(tmp_path, "exclusive", exclusive=True))
        pids = await pid_of(tmp_path, "ordinary"), await pid_of(tmp_path, "exclusive")
        server.begin_outage("hang")
        await pass_until(clock, server.acknowledged + TIMING.base_kill - 0.1)
        assert all(map(alive, pids))
        await pass_time(clock, MOMENT)
        for pid in pids:
            assert await ended_soon(pid)
        server.end_outage()
        await passes_until(clock, lambda: len(server.incarnations) == 2)
        assert not server.outcomes

    against_a_server(test)


def test_silence_after_store_down_ends_the_ordinary_runs_too(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker, clock: ManualClock) -> None:
        server.submit(a_shell(tmp_path, "ordinary"))
        pid = await pid_of(tmp_path, "ordinary")
        server.begin_outage("store_down")
        await pass_until(clock, server.acknowledged + TIMING.base_kill + 0.1)
        assert alive(pid)
        server.begin_outage("hang")
        silent_since = clock.monotonic()
        await pass_until(clock, silent_since + TIMING.base_kill - 1.5)
        assert alive(pid), "the last store_down is worth as much as an acknowledgement"
        await pass_until(clock, silent_since + TIMING.base_kill + MOMENT)
        assert await ended_soon(pid)

    against_a_server(test)


def test_after_the_grace_the_ordinary_runs_end_too(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker, clock: ManualClock) -> None:
        server.submit(a_shell(tmp_path, "ordinary"))
        pid = await pid_of(tmp_path, "ordinary")
        server.begin_outage("store_down")
        await pass_until(clock, server.acknowledged + SHORT_GRACE.cut_off_grace - 0.1)
        assert alive(pid)
        await pass_time(clock, MOMENT)
        assert await ended_soon(pid)
        server.end_outage()
        await passes_until(clock, lambda: len(server.incarnations) == 2)
        assert not server.outcomes

    against_a_server(test, timing=SHORT_GRACE)


def test_an_incarnation_that_was_given_up_meanwhile_drops_everything(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, _: Worker, clock: ManualClock) -> None:
        server.submit(a_shell(tmp_path, "ordinary"), a_shell(tmp_path, "exclusive", exclusive=True))
        pids = await pid_of(tmp_path, "ordinary"), await pid_of(tmp_path, "exclusive")
        server.begin_outage("store_down")
        await pass_until(clock, server.acknowledged + TIMING.base_kill + MOMENT)
        assert await ended_soon(pids[1])
        server.faults.append("fenced")
        server.end_outage()
        await passes_until(clock, lambda: len(server.incarnations) == 2)
        assert await ended_soon(pids[0])
        after = an_order()
        server.submit(after)
        await passes_until_reported(server, clock, after)
        assert server.outcomes[after.run_id].status == "SUCCESS"
        assert list(server.outcomes) == [after.run_id]

    against_a_server(test)


def test_an_idle_worker_sits_an_outage_out() -> None:
    async def test(server: ExchangeServer, _: Worker, clock: ManualClock) -> None:
        server.begin_outage("store_down")
        await pass_until(clock, server.acknowledged + TIMING.base_kill + 0.1)
        server.end_outage()
        order = an_order("shell", command="true", exclusive=True)
        server.submit(order)
        await passes_until_reported(server, clock, order)
        assert server.outcomes[order.run_id].status == "SUCCESS"
        assert len(server.incarnations) == 1

    against_a_server(test)
