"""Tests the rules for nominal times: each guard is removed in turn, and the rules must find that. The same scenes
without a mutant must have no violations. Time is set by the test."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta

import msgspec
import pytest

from mainspring.domain.schedules.nominal_times import fire_of
from mainspring.domain.schedules.schedule import Schedule
from mainspring.operations.control import amend
from mainspring.scheduler import firer
from mainspring.store import jobs
from mainspring.store.jobs import schedule_from_text
from mainspring.wire.exchange import RunOrder
from tests.cluster.history import BUSY, History
from tests.cluster.limit_stage import LimitStage
from tests.cluster.rules import judge
from tests.cluster.test_limit_mutants import replace
from tests.operations.faked_time import START, TimedServer, timed_server

pytestmark = pytest.mark.anyio

PERIOD, SECOND = timedelta(minutes=4), timedelta(seconds=1)
NOMINAL = START + PERIOD
SCHEDULE = {"every": "4m", "anchor": START.isoformat(), "jitter": "10s"}
Mutant = Callable[[pytest.MonkeyPatch], None]
Scene = Callable[["Stage"], Awaitable[None]]


class Stage(LimitStage):
    def __init__(self, server: TimedServer) -> None:
        super().__init__(server.api, server.assembly, server.connection)
        self.server = server
        self._times: list[datetime] = []

    async def begin(self) -> None:
        """A job whose first nominal time has run, with a short jitter."""
        call = await self.clients.submit({"task": "noop", "job_id": "target", "schedule": SCHEDULE})
        assert call.result == "ok", call
        await self.pass_until(NOMINAL + 20 * SECOND)

    async def pass_until(self, moment: datetime) -> None:
        """What becomes due fires on time, and runs."""
        while self.server.now < moment:
            await self.server.pass_until(min(moment, self.server.now + 60 * SECOND))
            await self.end(*await self.claim())

    async def stored(self) -> Schedule:
        text = await self.connection.fetchval("select schedule::text from mainspring.jobs")
        return schedule_from_text(text)

    async def longer_jitter(self) -> tuple[int, datetime]:
        """A jitter in seconds that gives the time that has run a fire which is still to come, and that fire."""
        for seconds in range(60, 240):
            found = fire_of(msgspec.structs.replace(await self.stored(), jitter=float(seconds)), NOMINAL)
            if found is not None and found > self.server.now:
                return seconds, found
        raise AssertionError("no jitter holds it up for so long")

    async def history(self) -> History:
        """The calls were made in the time of this machine, and are left out. So were the lines of the ledger, which get
        the times of the test."""
        history = await super().history()
        history.lines = [
            dataclasses.replace(line, at=at.timestamp() + history.offset)
            for line, at in zip(history.lines, self._times, strict=True)
        ]
        history.calls, history.machine = [], BUSY
        return history

    def _note(self, order: RunOrder, what: str) -> None:
        super()._note(order, what)
        self._times.append(self.server.now)


# -- guards, and how they are removed


def without_the_nominal_time_in_fires(patch: pytest.MonkeyPatch) -> None:
    """A fire compares its time with the last one, as before, and no nominal time."""
    patch.setattr(firer, "_dealt_with", lambda _: None)
    for query in ("fire_recurring", "fire_free", "fire_locked_recurring"):
        replace(patch, "fire", query, "j.last_nominal_for < coalesce(d.nominal, d.through)", "true")


def without_what_has_come(patch: pytest.MonkeyPatch) -> None:
    """A changed schedule begins with its first time after now."""
    original = amend.first_fire_instead
    patch.setattr(
        amend, "first_fire_instead", lambda new, old, _, now, dealt_with: original(new, old, None, now, dealt_with)
    )


def without_the_seed(patch: pytest.MonkeyPatch) -> None:
    """A change writes the schedule that it was sent."""
    patch.setattr(amend, "for_job", lambda schedule, *_: schedule)
    patch.setattr(jobs, "with_seed", lambda schedule, *_: schedule)


# -- what happens


async def a_server_of_before_changes_the_jitter(stage: Stage) -> None:
    """It writes the first fire after now, and knows no nominal times."""
    await stage.begin()
    seconds, fire = await stage.longer_jitter()
    await stage.connection.execute(
        "update mainspring.jobs set schedule = (schedule::jsonb || jsonb_build_object('jitter', $1::int))::json,"
        " next_fire_at = $2, version = version + 1, updated_at = $3",
        seconds, fire, stage.server.now,
    )  # fmt: skip
    await stage.pass_until(NOMINAL + 3 * PERIOD)


async def a_shorter_jitter_while_a_time_waits(stage: Stage) -> None:
    """The next time has come, and waits for its jitter."""
    await stage.begin()
    await stage.clients.change("target", {"schedule": {"jitter": "200s"}})
    await stage.pass_until(NOMINAL + PERIOD + SECOND)
    await stage.clients.change("target", {"schedule": {"jitter": "10s"}})
    await stage.pass_until(NOMINAL + 3 * PERIOD)


async def the_same_schedule_again(stage: Stage) -> None:
    await stage.begin()
    for method in ("PUT", "PATCH"):
        call = await stage.clients.call("change", method, "/v1/jobs/target", {"schedule": SCHEDULE})
        assert call.result == "ok", call
    await stage.pass_until(NOMINAL + 3 * PERIOD)


SCENES: dict[Mutant, tuple[Scene, str]] = {
    without_the_nominal_time_in_fires: (a_server_of_before_changes_the_jitter, "S1"),
    without_what_has_come: (a_shorter_jitter_while_a_time_waits, "L2"),
    without_the_seed: (the_same_schedule_again, "S2"),
}


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[Stage]:
    async with timed_server(database_url) as server:
        made = Stage(server)
        await made.open()
        # All connections are those of one node, and a transaction begins when it writes.
        await server.connection.execute(
            "alter table cluster_audit.events alter column process set default 'node',"
            " alter column began set default clock_timestamp()"
        )
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SCENES, ids=lambda mutant: mutant.__name__)
async def test_the_checker_finds_a_nominal_time(mutant: Mutant, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    scene, rule = SCENES[mutant]
    await scene(stage)
    found = judge(await stage.history())
    assert rule in {violation.rule for violation in found}, [str(violation) for violation in found]


@pytest.mark.parametrize("scene", [scene for scene, _ in SCENES.values()], ids=lambda scene: scene.__name__)
async def test_the_checker_finds_nothing_when(scene: Scene, stage: Stage) -> None:
    await scene(stage)
    history = await stage.history()
    assert [str(violation) for violation in judge(history)] == []
    assert len(history.births) >= 3
