"""Tests the rules for limits and unique jobs: each guard is removed in turn, and S10 or S7 must find that. The same
scenes without a mutant must have no violations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.pacing import Pace
from mainspring.operations.control import run_now
from mainspring.operations.lifecycle import rescue
from mainspring.operations.lifecycle.effects import Effects, RunChanges
from mainspring.operations.limits import limit_declarer as lines
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.roles.assembly import Assembly
from mainspring.store import limits
from mainspring.store.queries import load
from mainspring.store.rows import ROW_QUERIES
from tests.cluster.history import BUSY
from tests.cluster.limit_stage import PER_ACCOUNT, LimitStage
from tests.cluster.load_limits import KEPT, LATER
from tests.cluster.rules import judge
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

STRICT = {**PER_ACCOUNT, "order": "strict"}
RARELY = {"job_id": "target", "schedule": {"every": "1h"}, "concurrency": None, "payload": None}
Mutant = Callable[[pytest.MonkeyPatch], None]
Scene = Callable[[LimitStage, pytest.MonkeyPatch], Awaitable[None]]


# -- guards, and how they are removed


def replace(patch: pytest.MonkeyPatch, file: str, query: str, guard: str, instead: str) -> None:
    """Change a query until the end of the test."""
    queries = load(file)
    before = queries[query]
    changed = before.replace(guard, instead)
    assert changed != before, f"{file}.sql, {query}: there is no {guard!r} to leave out"
    patch.setitem(queries, query, changed)
    for row_query in ROW_QUERIES:
        if row_query.sql == before:
            patch.setattr(row_query, "sql", changed)


def without_the_lock_of_the_line(patch: pytest.MonkeyPatch) -> None:
    replace(patch, "limits", "lock_lines", "for no key update of k", "")


def without_strict_order(patch: pytest.MonkeyPatch) -> None:
    """A strict line is treated like any other: it admits whoever is the first by rank, and that nobody has locked."""
    replace(patch, "limits", "lock_lines", "l.strict", "false as strict")


def without_the_place_of_who_backs_off(patch: pytest.MonkeyPatch) -> None:
    replace(patch, "limits", "pick_firsts", "o.state = 4", "o.state = 4 and o.wake_at is null")


def without_the_time_of_submission(patch: pytest.MonkeyPatch) -> None:
    """A strict line goes by rank, which priority has changed for those that were submitted before it was strict."""
    replace(patch, "limits", "pick_firsts", "order by coalesce(o.fired_at, o.scheduled_for)", "order by o.held_rank")


def without_those_in_other_lines(patch: pytest.MonkeyPatch) -> None:
    replace(patch, "limits", "pick_firsts", "first_elsewhere(f.key_id", "first_elsewhere(0")


def without_the_change_of_the_limit(patch: pytest.MonkeyPatch) -> None:
    """An admission that waited for the lock of a line goes by the limit as it was before."""
    replace(patch, "limits", "pick_heads", "where l.updated_at <> s.changed_at", "where false")


def without_room(patch: pytest.MonkeyPatch) -> None:
    """A hand-over does not look at how many slots are in use."""
    replace(patch, "limits", "lock_lines", "k.in_use", "0 as in_use")


def without_giving_up_the_slot(patch: pytest.MonkeyPatch) -> None:
    """A run that backs off is still counted."""
    replace(patch, "limits", "hold_back", "returning r.run_id, r.limit_keys", "returning r.run_id, '{}'::bigint[]")


def without_the_state_of_who_ends(patch: pytest.MonkeyPatch) -> None:
    """A HELD run that is cancelled gives back a slot that it never had."""
    replace(patch, "runs", "end_runs", "case when state <> 4 then", "case when true then")


def without_the_slot_of_the_rescued(patch: pytest.MonkeyPatch) -> None:
    """A run that is rescued and QUEUED again gives up its slot."""
    apply_changes = rescue.apply_changes

    async def giving_up(connection: asyncpg.Connection, changes: RunChanges, effects: Effects) -> None:
        await apply_changes(connection, changes, effects)
        query = "select limit_keys from mainspring.runs where run_id = any ($1::uuid[])"
        for row in await connection.fetch(query, [item.run_id for item in changes.requeues]):
            effects.given_back.slots.update(row["limit_keys"])

    patch.setattr(rescue, "apply_changes", giving_up)


def without_counting_the_adopted(patch: pytest.MonkeyPatch) -> None:
    """A job whose runs go one after another from now on forgets the one that runs."""
    replace(patch, "limits", "join_line", "in_use = k.in_use + (select", "in_use = k.in_use + 0 * (select")


def without_replacing(patch: pytest.MonkeyPatch) -> None:
    """Overlap cancel_previous lets the earlier run go on."""

    async def nothing(*_: Any) -> None: ...

    patch.setattr(run_now, "cancel_earlier", nothing)


def without_the_holder_of_a_unique_key(patch: pytest.MonkeyPatch) -> None:
    """A submission does not look whether the job that has its key is alive."""
    replace(patch, "unique", "states_of_holders", ") as live", ") as live where false")


def without_tokens(patch: pytest.MonkeyPatch) -> None:
    """A rate gives a token to whoever asks, for now."""
    patch.setattr(Pace, "tokens", property(lambda _: 500))
    patch.setattr(Pace, "moment", lambda pace, _: pace.now)


def without_the_use_of_the_gate(patch: pytest.MonkeyPatch) -> None:
    """A claim does not count one of the runs that run."""
    replace(patch, "gates", "lock_gates", "g.in_use", "g.in_use - 1 as in_use")


def without_the_pause(patch: pytest.MonkeyPatch) -> None:
    """A claim does not look whether the queue is paused."""
    replace(patch, "gates", "lock_gates", "g.paused_at is not null as paused", "false as paused")
    patch.setattr(GateRegistry, "is_paused", lambda *_: False)


def without_the_number_that_was_set(patch: pytest.MonkeyPatch) -> None:
    """An admission reads what is declared."""
    replace(patch, "limits", "lock_lines", "l.slots", "l.declared as slots")


def without_the_holder_of_a_later_key(patch: pytest.MonkeyPatch) -> None:
    without_the_holder_of_a_unique_key(patch)


# -- what happens


async def two_submissions_at_once(stage: LimitStage, patch: pytest.MonkeyPatch) -> None:
    """The first one has admitted its run and is about to commit when the second one looks at the open line."""
    patch.setattr(lines, "_DECLARED_FOR", 3600.0)  # otherwise it declares the limit again, and waits there
    await stage.submit()
    await stage.finish()
    admit, admitted, go_on = limits.admit, asyncio.Event(), asyncio.Event()

    async def stopping(*arguments: Any) -> Any:
        done = await admit(*arguments)
        if not admitted.is_set():
            admitted.set()
            await go_on.wait()
        return done

    patch.setattr(limits, "admit", stopping)
    first = asyncio.create_task(stage.submit())
    await admitted.wait()
    second = asyncio.create_task(stage.submit())
    await until(lambda: somebody_waits(stage))
    go_on.set()
    await asyncio.gather(first, second)
    await stage.finish()


async def the_head_of_a_strict_line_is_locked(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    """Somebody else holds the row of the next run when the slot is given back."""
    _first, second, _third = [await stage.submit(concurrency=STRICT) for _ in range(3)]
    orders = await stage.claim()
    async with stage.assembly.store.hot.acquire() as other, other.transaction():
        await other.execute("select from mainspring.runs where run_id::text = $1 for update", second)
        await stage.end(*orders)
    await stage.finish()


async def a_line_becomes_strict_while_a_run_backs_off(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    await stage.submit()
    await stage.end(*await stage.claim(), status="FAILED")
    for _number in range(2):
        await stage.submit(concurrency=STRICT)
    await stage.finish()


async def a_line_becomes_strict_while_a_run_works(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    await stage.submit()
    orders = await stage.claim()
    await stage.submit(concurrency=STRICT)
    await stage.end(*orders, status="FAILED")
    await stage.finish()


async def a_line_becomes_strict_while_runs_wait(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    for priority in ("normal", "low", "critical"):
        await stage.submit(priority=priority)
    await stage.submit(concurrency=STRICT)
    await stage.finish()


async def a_run_waits_for_another_limit(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    """It also needs the line that becomes strict."""
    other = {"key": "labels.shop", "limit": 1}
    labels = {"labels": {"shop": "x"}}
    await stage.submit(concurrency=other, **labels)
    await stage.submit(concurrency=[PER_ACCOUNT, other], **labels)
    orders = await stage.claim()
    await stage.submit(concurrency=STRICT)
    orders += await stage.claim()
    await stage.end(*orders)
    await stage.finish()


async def a_line_becomes_strict_while_a_report_waits_for_it(stage: LimitStage, patch: pytest.MonkeyPatch) -> None:
    """The submission that makes the line strict has locked it when a run ends that owns its slot."""
    for status in ("FAILED", "SUCCESS"):
        await stage.submit()
        orders = await stage.claim()
        if status == "FAILED":
            await stage.end(*orders, status=status)
    lock, locked, go_on = limits.lock_lines, asyncio.Event(), asyncio.Event()

    async def stopping(*arguments: Any) -> Any:
        done = await lock(*arguments)
        if not locked.is_set():
            locked.set()
            await go_on.wait()
        return done

    patch.setattr(limits, "lock_lines", stopping)
    submission = asyncio.create_task(stage.submit(concurrency=STRICT))
    await locked.wait()
    report = asyncio.create_task(stage.end(*orders))
    await until(lambda: somebody_waits(stage))
    go_on.set()
    await asyncio.gather(submission, report)
    await stage.finish()


async def more_than_allowed_are_submitted(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    for _number in range(3):
        await stage.submit()
    await stage.finish()


async def a_run_backs_off(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    for _number in range(2):
        await stage.submit()
    await stage.end(*await stage.claim(), status="FAILED")
    await stage.finish()


async def a_held_run_is_cancelled(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    _first, second, _third = [await stage.submit() for _ in range(3)]
    orders = await stage.claim()
    call = await stage.clients.cancel(second)
    assert call.result == "ok", call
    orders += await stage.claim()
    await stage.end(*orders)
    await stage.finish()


async def a_worker_is_lost(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    for _number in range(2):
        await stage.submit()
    await stage.claim()
    await stage.lose_the_worker()
    await stage.finish()


async def a_running_job_gets_the_rule_queue(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    await stage.submit(**RARELY, overlap="allow")
    await stage.clients.steer("target", "runNow")
    orders = await stage.claim()
    await stage.clients.change("target", {"overlap": "queue"})
    await stage.clients.steer("target", "runNow")
    orders += await stage.claim()
    await stage.end(*orders)
    await stage.finish()


async def a_second_run_of_cancel_previous(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    await stage.submit(**RARELY, overlap="cancel_previous")
    await stage.clients.steer("target", "runNow")
    orders = await stage.claim()
    await stage.clients.steer("target", "runNow")
    await stage.end(*orders, status="FAILED")
    await stage.finish()


async def a_unique_job_twice(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    unique = {"name": f"{KEPT}1", "unique": {"by": ["name"]}, "concurrency": None}
    for _number in range(2):
        await stage.submit(**unique)
    await stage.finish()


async def more_than_a_rate_allows(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    for _number in range(4):
        await stage.submit(concurrency=None, rate_limit={"rate": "1/h", "burst": 1})
    await stage.finish()


async def more_than_a_queue_allows(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    await stage.set("/v1/queues/default", concurrency=1)
    for _number in range(3):
        await stage.submit(concurrency=None)
    await stage.end(*await stage.claim(), *await stage.claim())
    await stage.finish()


async def a_queue_is_paused(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    await stage.submit(concurrency=None)
    await stage.set("/v1/queues/default", paused=True)
    await stage.end(*await stage.claim())


async def a_limit_is_lowered_while_runs_are_held(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    for _number in range(5):
        await stage.submit(concurrency={"key": "payload.account", "limit": 2})
    [limit] = (await stage.api.get("/v1/limits")).json()["limits"]
    await stage.set(f"/v1/limits/{limit['limit_id']}", limit=1)
    await stage.end(*await stage.claim())
    await stage.finish()


async def a_later_job_twice(stage: LimitStage, _: pytest.MonkeyPatch) -> None:
    later = {"name": f"{LATER}1", "unique": {"by": ["name"], "else": "later", "for": "4s"}, "concurrency": None}
    for delay in ("1s", "2s", "1s", "1h"):
        await stage.submit(**later, delay=delay)


SCENES: dict[Mutant, Scene] = {
    without_the_lock_of_the_line: two_submissions_at_once,
    without_strict_order: the_head_of_a_strict_line_is_locked,
    without_the_place_of_who_backs_off: a_line_becomes_strict_while_a_run_backs_off,
    without_the_time_of_submission: a_line_becomes_strict_while_runs_wait,
    without_those_in_other_lines: a_run_waits_for_another_limit,
    without_the_change_of_the_limit: a_line_becomes_strict_while_a_report_waits_for_it,
    without_room: more_than_allowed_are_submitted,
    without_giving_up_the_slot: a_run_backs_off,
    without_the_state_of_who_ends: a_held_run_is_cancelled,
    without_the_slot_of_the_rescued: a_worker_is_lost,
    without_counting_the_adopted: a_running_job_gets_the_rule_queue,
    without_replacing: a_second_run_of_cancel_previous,
    without_the_holder_of_a_unique_key: a_unique_job_twice,
    without_tokens: more_than_a_rate_allows,
    without_the_use_of_the_gate: more_than_a_queue_allows,
    without_the_pause: a_queue_is_paused,
    without_the_number_that_was_set: a_limit_is_lowered_while_runs_are_held,
    without_the_holder_of_a_later_key: a_later_job_twice,
}


def rule_of(mutant: Mutant) -> str:
    return "S7" if "holder" in mutant.__name__ else "S10"


@pytest.fixture
async def stage(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> LimitStage:
    made = LimitStage(api, assembly, connection)
    await made.open()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SCENES, ids=lambda mutant: mutant.__name__)
async def test_the_checker_finds_a_limit(mutant: Mutant, stage: LimitStage, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    await SCENES[mutant](stage, monkeypatch)
    found = judge(await stage.history())
    assert rule_of(mutant) in {violation.rule for violation in found}, [str(violation) for violation in found]


@pytest.mark.parametrize(
    "scene", [*SCENES.values(), a_line_becomes_strict_while_a_run_works], ids=lambda scene: scene.__name__
)
async def test_the_checker_finds_nothing_when(scene: Scene, stage: LimitStage, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene(stage, monkeypatch)
    history = await stage.history()
    history.machine = BUSY
    assert [str(violation) for violation in judge(history)] == []


async def somebody_waits(stage: LimitStage) -> bool:
    """A statement waits for a line."""
    query = """select exists (select from pg_stat_activity where datname = current_database()
                              and wait_event_type = 'Lock' and query like '%limit_keys%')"""
    return bool(await stage.connection.fetchval(query))
