"""A worker that was granted a lease: its exclusive runs outlive its ordinary ones, and it remains the same worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.wire.exchange import LeaseGrant
from mainspring.worker.execution.runner import Runner
from mainspring.worker.lease_enforcer import LeaseEnforcer
from mainspring.worker.processes.death_record import DeathRecord, longest_silence, shared_memory
from mainspring.worker.processes.watchdog_client import WatchdogClient
from mainspring.worker.worker import Worker

from .a_worker import against_a_server as against
from .a_worker import pass_time, passes_until, passes_until_reported
from .exchange_server import ExchangeServer, an_order
from .processes import alive, ended_soon
from .test_store_down import MOMENT, a_shell, pass_until, pid_of

TIMING = Timing(beat=0.2, beat_slack=0.1, base_kill=4.0, cut_off_grace=60.0, kill_grace=0.3, drain_grace=0.3)
GRANT = LeaseGrant(12.0, 60.0)


def against_a_server(test: Callable[[ExchangeServer, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock()

    async def granted(server: ExchangeServer, _: Worker) -> None:
        await passes_until(clock, lambda: any(request.hello and request.hello.lease for request in server.requests))
        await pass_time(clock, TIMING.beat)
        await test(server, clock)

    against(granted, timing=TIMING, answered=2.0, clock=clock, grants=GRANT)


def test_silence_ends_ordinary_runs_and_exclusive_ones_go_on_under_the_same_incarnation(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, clock: ManualClock) -> None:
        ordinary, exclusive = a_shell(tmp_path, "ordinary"), a_shell(tmp_path, "exclusive", exclusive=True)
        server.submit(ordinary, exclusive)
        pids = await pid_of(tmp_path, "ordinary"), await pid_of(tmp_path, "exclusive")
        server.begin_outage("hang")
        await pass_until(clock, server.acknowledged + GRANT.kill - 0.1)
        assert all(map(alive, pids))
        await pass_time(clock, MOMENT)
        assert await ended_soon(pids[0])
        await pass_until(clock, server.acknowledged + GRANT.exclusive_kill - 5.0)
        assert alive(pids[1])
        server.end_outage()
        await passes_until_reported(server, clock, ordinary)
        assert server.outcomes[ordinary.run_id].status == "RETURNED"
        (tmp_path / "go").touch()
        assert await ended_soon(pids[1])
        await passes_until_reported(server, clock, exclusive)
        assert server.outcomes[exclusive.run_id].status == "SUCCESS"
        assert len(server.incarnations) == 1
        assert server.recorded_twice == []

    against_a_server(test)


def test_a_silence_shorter_than_the_lease_costs_nothing(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, clock: ManualClock) -> None:
        orders = a_shell(tmp_path, "ordinary"), a_shell(tmp_path, "exclusive", exclusive=True)
        server.submit(*orders)
        pids = await pid_of(tmp_path, "ordinary"), await pid_of(tmp_path, "exclusive")
        server.begin_outage("hang")
        await pass_until(clock, server.acknowledged + 8.0)
        server.end_outage()
        await pass_time(clock, 8.0)
        assert all(map(alive, pids))
        (tmp_path / "go").touch()
        for order in orders:
            await passes_until_reported(server, clock, order)
            assert server.outcomes[order.run_id].status == "SUCCESS"
        assert len(server.incarnations) == 1

    against_a_server(test)


def test_an_outage_of_the_database_of_nearly_a_minute_costs_no_run_of_either_kind(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, clock: ManualClock) -> None:
        orders = a_shell(tmp_path, "ordinary"), a_shell(tmp_path, "exclusive", exclusive=True)
        server.submit(*orders)
        pids = await pid_of(tmp_path, "ordinary"), await pid_of(tmp_path, "exclusive")
        server.begin_outage("store_down")
        await pass_until(clock, server.acknowledged + GRANT.exclusive_kill - 1.0)
        assert all(map(alive, pids))
        server.end_outage()
        (tmp_path / "go").touch()
        for order in orders:
            await passes_until_reported(server, clock, order)
            assert server.outcomes[order.run_id].status == "SUCCESS"
        assert len(server.incarnations) == 1

    against_a_server(test)


def test_when_the_exclusive_lease_is_over_too_the_incarnation_ends(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, clock: ManualClock) -> None:
        server.submit(a_shell(tmp_path, "exclusive", exclusive=True))
        pid = await pid_of(tmp_path, "exclusive")
        server.begin_outage("hang")
        await pass_until(clock, server.acknowledged + GRANT.exclusive_kill - 0.1)
        assert alive(pid)
        await pass_time(clock, MOMENT)
        assert await ended_soon(pid)
        server.end_outage()
        await passes_until(clock, lambda: len(server.incarnations) == 2)
        assert not server.outcomes

    against_a_server(test)


def test_without_exclusive_runs_silence_ends_the_incarnation(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, clock: ManualClock) -> None:
        server.submit(a_shell(tmp_path, "ordinary"))
        pid = await pid_of(tmp_path, "ordinary")
        server.begin_outage("hang")
        await pass_until(clock, server.acknowledged + GRANT.kill + MOMENT)
        assert await ended_soon(pid)
        server.end_outage()
        await passes_until(clock, lambda: len(server.incarnations) == 2)
        assert not server.outcomes

    against_a_server(test)


def test_a_coroutine_is_cancelled_and_handed_back(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, clock: ManualClock) -> None:
        ordinary = an_order("sleeps", payload={"seconds": 300.0})
        exclusive = a_shell(tmp_path, "exclusive", exclusive=True)
        server.submit(ordinary, exclusive)
        pid = await pid_of(tmp_path, "exclusive")
        server.begin_outage("hang")
        await pass_until(clock, server.acknowledged + GRANT.kill + MOMENT)
        server.end_outage()
        await passes_until_reported(server, clock, ordinary)
        assert server.outcomes[ordinary.run_id].status == "RETURNED"
        assert alive(pid)
        (tmp_path / "go").touch()
        await passes_until_reported(server, clock, exclusive)

    against_a_server(test)


# -- what the watchdog is told


class Held:
    """A runner that holds so many runs."""

    def __init__(self, ordinary: int, exclusive: int) -> None:
        self.ordinary, self.exclusive = ordinary, exclusive

    @property
    def holding(self) -> int:
        return self.ordinary + self.exclusive

    def holds_ordinary(self) -> bool:
        return self.ordinary > 0

    def holds_exclusive(self) -> bool:
        return self.exclusive > 0

    def holds_unkillable(self, *, exclusive: bool) -> bool:
        return False

    def stop_kind(self, *, exclusive: bool) -> int:
        return self.exclusive if exclusive else self.ordinary


class Told:
    deadline: float | None = None

    def set_deadline(self, deadline: float | None) -> None:
        self.deadline = deadline


class Scene:
    def __init__(self, ordinary: int, exclusive: int) -> None:
        self.clock, self.held, self.told = ManualClock(), Held(ordinary, exclusive), Told()
        self.sent = self.clock.monotonic()
        self.enforcer = LeaseEnforcer(
            cast("Runner", self.held), cast("WatchdogClient", self.told), TIMING, self.clock
        )  # fmt: skip
        self.enforcer.acknowledge(self.sent)

    def deadline(self) -> float | None:
        """After the last acknowledgement."""
        self.enforcer.guard()
        return None if self.told.deadline is None else round(self.told.deadline - self.sent, 3)


@pytest.mark.parametrize(
    ("ordinary", "exclusive", "deadline"), [(0, 0, None), (1, 0, 12.0), (1, 1, 12.0), (0, 1, 60.0)]
)
def test_the_watchdog_follows_the_kind_that_ends_first(ordinary: int, exclusive: int, deadline: float | None) -> None:
    scene = Scene(ordinary, exclusive)
    scene.enforcer.grant(GRANT)
    assert scene.deadline() == deadline


def test_the_watchdog_gives_runs_a_moment_to_stop_and_then_follows_the_others() -> None:
    scene = Scene(2, 1)
    scene.enforcer.grant(GRANT)
    assert scene.enforcer.next_check == scene.sent + 12.0
    assert scene.enforcer.enforce(scene.sent + 11.9) is None
    assert scene.deadline() == 12.0
    assert scene.enforcer.enforce(scene.sent + 12.0) is None
    assert scene.deadline() == 12.25
    scene.held.ordinary = 0
    assert scene.deadline() == 60.0
    assert scene.enforcer.next_check == scene.sent + 60.0
    assert scene.enforcer.enforce(scene.sent + 60.0) == "no acknowledgement for 60.0 s"


def test_a_new_incarnation_has_been_granted_nothing_and_an_idle_one_keeps_its_grant() -> None:
    scene = Scene(1, 0)
    scene.enforcer.grant(GRANT)
    scene.enforcer.reset()
    assert scene.enforcer.kill == 12.0
    scene.enforcer.new_incarnation()
    assert scene.enforcer.kill == 4.0
    scene.enforcer.acknowledge(scene.sent)
    assert scene.deadline() == 4.0


def test_without_a_grant_store_down_lets_exclusive_runs_end_first() -> None:
    scene = Scene(1, 1)
    scene.enforcer.hear_store_down(scene.sent + 3.0, scene.sent + 3.0)
    assert scene.deadline() == 4.0
    assert scene.enforcer.enforce(scene.sent + 4.0) is None
    assert scene.deadline() == 4.25
    scene.held.exclusive = 0
    assert scene.deadline() == 7.0


def test_the_parent_watchdog_knows_the_lease_of_exclusive_runs() -> None:
    async def test(server: ExchangeServer, worker: Worker) -> None:
        memory = shared_memory()
        worker._death_record = DeathRecord(memory)
        server.faults.append("fenced")  # a new incarnation is granted its lease anew
        await server.until(lambda: longest_silence(memory))
        assert longest_silence(memory) == 75.0

    against(test, timing=TIMING, grants=GRANT)
