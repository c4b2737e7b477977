"""Tests the rules for events and waits: each guard is removed in turn, and S16 must find that. The same scenes without
a mutant must have no violations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.transitions import StoredJobStatus
from mainspring.operations.events import starter
from mainspring.operations.events.matcher import EventMatcher
from mainspring.operations.waits import approvals, ending
from mainspring.operations.waits.effects import CalledByEvents, EndedChildren, EndedWaits
from mainspring.roles.assembly import Assembly
from mainspring.store import events, waits
from mainspring.store.events import EmittedRow, PendingStart
from tests.cluster.event_stage import EventStage
from tests.cluster.history import BUSY
from tests.cluster.rules import judge
from tests.cluster.rules_waits import APPROVE
from tests.cluster.test_limit_mutants import replace

pytestmark = pytest.mark.anyio

Mutant = Callable[[pytest.MonkeyPatch], None]
Scene = Callable[[EventStage], Awaitable[None]]


class Killed(Exception):
    pass


# -- guards, and how they are removed


def without_one_transaction_of_the_matcher(patch: pytest.MonkeyPatch) -> None:
    """Events are marked before what they start is stored."""
    step, find, mark = EventMatcher._step, events.to_match, events.mark_matched

    async def marks_first(self: EventMatcher) -> int:
        async with self._store.change() as connection:
            found = await find(connection, self._at_once)
            await mark(connection, found)

        async def those(*_: Any) -> list[EmittedRow]:
            return found

        patch.setattr(events, "to_match", those)
        return await step(self)

    patch.setattr(EventMatcher, "_step", marks_first)
    patch.setattr(events, "mark_matched", _nothing)


def without_the_key_of_a_start(patch: pytest.MonkeyPatch) -> None:
    """An event that is matched again starts its jobs again."""
    replace(patch, "events", "mark_matched", "delete from", "select u.seq from")
    replace(patch, "events", "mark_matched", "returning u.seq", "")
    again = "on conflict (tenant_id, event_id, job_id) do update set due_at = excluded.due_at"
    insert = "cross join (select clock_timestamp() as now) as t"
    replace(patch, "events", "insert_starts", insert, f"{insert}\n{again}")


def without_the_note_of_a_start(patch: pytest.MonkeyPatch) -> None:
    """A start that has its run is due again."""
    replace(patch, "events", "note_starts", "set due_at = null, ", "set ")


def without_the_condition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mainspring.operations.events.started_jobs._holds", lambda *_: True)


def without_the_first_of_an_id(patch: pytest.MonkeyPatch) -> None:
    """A repeated event replaces the first one."""
    changed = "on conflict (tenant_id, event_id) do update set payload = excluded.payload"
    replace(patch, "events", "insert_events", "on conflict do nothing", changed)
    replace(patch, "events", "insert_events", "from stored s\n", "from stored s on conflict do nothing\n")


def without_pauses(patch: pytest.MonkeyPatch) -> None:
    """A paused job starts."""
    words = SimpleNamespace(PAUSED=-1, CANCELLED=StoredJobStatus.CANCELLED)
    patch.setattr(starter, "StoredJobStatus", words)
    replace(patch, "events", "create_event_runs", "and j.status = 1", "")
    replace(patch, "events", "jobs_to_start", "and j.status <> 2", "")


def without_the_size_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    def whole(part: list[PendingStart], *_: Any) -> Iterator[list[PendingStart]]:
        yield part

    patch.setattr(starter, "_of_part", whole)


def without_the_order_of_events(patch: pytest.MonkeyPatch) -> None:
    replace(patch, "events", "starts_of_job", "order by s.seq", "order by s.seq desc")


def without_the_lock_of_a_wait(patch: pytest.MonkeyPatch) -> None:
    """Who ends a wait has not locked its run, and does not look whether it has ended it."""
    replace(patch, "waits", "lock_wait", "for no key update of r", "")
    patch.setattr(ending, "check_count", lambda *_: None)


def without_a_look_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A wait looks for its event in the transaction in which it begins."""
    begin = waits.open_all

    async def looks_at_once(connection: asyncpg.Connection, new: Sequence[waits.NewWait]) -> list[float | None]:
        opened = await begin(connection, new)
        await waits.look(connection, 100)
        return opened

    patch.setattr(waits, "open_all", looks_at_once)


def without_a_look_back(patch: pytest.MonkeyPatch) -> None:
    """Events that came before the wait do not count."""
    replace(patch, "waits", "look_for_events", "and e.at >= w.since", "and e.at >= w.began_at")


def without_a_call_of_waits(patch: pytest.MonkeyPatch) -> None:
    """An event does not wake who waits for it."""
    patch.setattr(CalledByEvents, "wants", lambda *_: False)


def without_the_event_at_a_timeout(patch: pytest.MonkeyPatch) -> None:
    """A wait whose time is over does not ask whether its event has come."""
    replace(patch, "waits", "due_waits", "and v.at >= w.since", "and v.at < w.since")


def without_the_end_of_a_wait(patch: pytest.MonkeyPatch) -> None:
    """The run ends, and its wait is left."""
    patch.setattr(EndedWaits, "wants", lambda *_: False)


def without_the_time_of_a_sleep(patch: pytest.MonkeyPatch) -> None:
    due = "d.wake_at <= (select clock_timestamp())"
    replace(patch, "waits", "due_waits", due, f"{due} + interval '1 hour'")


def without_the_child_of_a_step(patch: pytest.MonkeyPatch) -> None:
    """A step starts another child when its first one is not noted."""
    replace(patch, "child_runs", "lock_child_run", "and c.state = $2", "and $2 is not null")
    replace(patch, "child_runs", "child_runs_to_do", "c.state = $1 and", "c.state >= $1 and")
    replace(patch, "child_runs", "child_started", "c.child is null and c.state = 1", "c.state >= 1")


def without_the_end_of_a_child(patch: pytest.MonkeyPatch) -> None:
    """A step is not told that its child has ended."""
    patch.setattr(EndedChildren, "wants", lambda *_: False)


async def _nothing(*_: Any) -> None: ...


# -- what happens


async def a_matcher_is_killed_in_its_step(stage: EventStage) -> None:
    await stage.job("job")
    for event_id in ("1", "2"):
        await stage.emit(event_id)
    with _once(events, "insert_starts", _kill), suppress(Killed):
        await stage.matcher.run_once()
    await stage.settle()


async def events_start_a_job(stage: EventStage) -> None:
    """Some are wanted, some are sent twice, and the last one comes after the first ones have started."""
    await stage.job("job", **{"if": "payload.n >= 50"})
    for event_id, n in (("1", 60), ("2", 40), ("1", 70)):
        await stage.emit(event_id, n=n)
    await stage.settle()
    await stage.emit("3", n=80)
    await stage.settle()


async def a_job_is_paused_meanwhile(stage: EventStage) -> None:
    await stage.job("job")
    await stage.steer("job", "pause")
    await stage.emit("1")
    await stage.settle()
    await stage.steer("job", "resume")
    await stage.settle()


async def events_share_runs(stage: EventStage) -> None:
    await stage.job("job", batch={"size": 2, "wait": "100ms"})
    for number in range(5):
        await stage.emit(str(number))
    await stage.matcher.run_once()
    async with asyncio.timeout(10):
        while not await stage.starter.run_once():
            pass
    await stage.settle()


async def events_of_a_key_come_one_after_another(stage: EventStage) -> None:
    await stage.job("job")
    for number in range(3):
        await stage.emit(str(number), key="k")
    await stage.settle()


async def two_people_decide_at_once(stage: EventStage) -> None:
    """Each has found the step waiting before the other one ends it, if nothing keeps them apart."""
    flow_id = await stage.begin({"name": "gate", "wait": {"approval": "release"}})
    run_id = await stage.step_run(flow_id, "gate")
    both = asyncio.Barrier(2)

    async def together(*_: Any) -> None:
        with suppress(TimeoutError, asyncio.BrokenBarrierError):
            await asyncio.wait_for(both.wait(), 0.3)

    with _once(approvals, "end_waits", together, before=True, times=2):
        await asyncio.gather(*(stage.decide(APPROVE, run_id, who) for who in ("one", "two")))
    await stage.settle()


async def an_event_comes_while_its_wait_begins(stage: EventStage) -> None:
    """It is stored and matched before the transaction that begins the wait is committed."""

    async def emits(*_: Any) -> None:
        await stage.emit("1", name="paid", key="k")
        await stage.matcher.run_once()

    with _once(waits, "open_all", emits):
        await stage.begin({"name": "paid", "wait": {"event": "paid", "key": "k"}})
    await stage.settle()


async def events_come_before_and_after_their_waits(stage: EventStage) -> None:
    await stage.emit("1", name="paid", key="early")
    await stage.matcher.run_once()
    await stage.begin(
        *({"name": key, "wait": {"event": "paid", "key": key}} for key in ("early", "late")),
        {"name": "both", "depends_on": ["early", "late"]},
    )
    await stage.settle()
    await stage.emit("2", name="paid", key="late")
    await stage.settle()


async def an_event_comes_with_the_timeout(stage: EventStage) -> None:
    wait = {"event": "paid", "key": "k", "timeout": "1ms", "on_timeout": "continue"}
    with _once(waits, "open_all", lambda *_: stage.emit("1", name="paid", key="k")):
        await stage.begin({"name": "paid", "wait": wait})
    await stage.settle()


async def steps_sleep(stage: EventStage) -> None:
    await stage.begin(
        {"name": "a"},
        {"name": "short", "sleep": "700ms", "depends_on": ["a"]},
        {"name": "b", "depends_on": ["short"]},
    )
    async with asyncio.timeout(10):
        while await stage.is_busy():
            await stage.settle()


async def a_step_runs_a_workflow(stage: EventStage) -> None:
    inner = {"workflow_id": "inner", "steps": [{"name": "one", "task": "noop", "retries": 0}], "overlap": "allow"}
    assert (await stage.scene.api.post("/v1/workflows", json=inner)).status_code == 201
    await stage.begin({"name": "down", "workflow": "inner"}, {"name": "after", "depends_on": ["down"]})
    await stage.children.run_once()
    await stage.settle()
    await stage.settle()


@contextmanager
def _once(
    module: Any, name: str, act: Callable[..., Awaitable[None]], *, before: bool = False, times: int = 1
) -> Iterator[None]:
    """Act once after this function of the product, or before it."""
    real, left = getattr(module, name), [None] * times

    async def acting(*given: Any, **named: Any) -> Any:
        acts = bool(left) and left.pop() is None
        if acts and before:
            await act()
        result = await real(*given, **named)
        if acts and not before:
            await act()
        return result

    setattr(module, name, acting)
    try:
        yield
    finally:
        setattr(module, name, real)


async def _kill() -> None:
    raise Killed


SCENES: dict[Mutant, Scene] = {
    without_one_transaction_of_the_matcher: a_matcher_is_killed_in_its_step,
    without_the_key_of_a_start: events_start_a_job,
    without_the_note_of_a_start: events_start_a_job,
    without_the_condition: events_start_a_job,
    without_the_first_of_an_id: events_start_a_job,
    without_pauses: a_job_is_paused_meanwhile,
    without_the_size_of_a_batch: events_share_runs,
    without_the_order_of_events: events_of_a_key_come_one_after_another,
    without_the_lock_of_a_wait: two_people_decide_at_once,
    without_a_look_after_the_commit: an_event_comes_while_its_wait_begins,
    without_a_look_back: events_come_before_and_after_their_waits,
    without_a_call_of_waits: events_come_before_and_after_their_waits,
    without_the_event_at_a_timeout: an_event_comes_with_the_timeout,
    without_the_end_of_a_wait: two_people_decide_at_once,
    without_the_time_of_a_sleep: steps_sleep,
    without_the_child_of_a_step: a_step_runs_a_workflow,
    without_the_end_of_a_child: a_step_runs_a_workflow,
}


@pytest.fixture
async def stage(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> EventStage:
    made = EventStage(api, assembly, connection)
    await made.open()
    return made


def rule_of(mutant: Mutant) -> str:
    return "S16"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SCENES, ids=lambda mutant: mutant.__name__)
async def test_the_checker_finds_events(mutant: Mutant, stage: EventStage, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    await SCENES[mutant](stage)
    found = judge(await stage.history())
    assert rule_of(mutant) in {violation.rule for violation in found}, [str(violation) for violation in found]


@pytest.mark.slow
@pytest.mark.parametrize("scene", dict.fromkeys(SCENES.values()), ids=lambda scene: scene.__name__)
async def test_the_checker_finds_nothing_when(scene: Scene, stage: EventStage) -> None:
    await scene(stage)
    history = await stage.history()
    history.machine = BUSY
    assert [str(violation) for violation in judge(history)] == []
