"""The transitions that each statement may make: declared in the SQL files, and checked on PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from mainspring.domain.errors import Conflict
from mainspring.domain.transitions import ENDED, INITIAL_STATES, LIVE, TRANSITIONS, Follows, StoredState, may_follow
from mainspring.domain.workflows.flow import FlowState
from mainspring.domain.workflows.rules import Rule, Skip
from mainspring.domain.workflows.waits import Wait, WaitKind
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.store import (
    child_runs,
    dependencies,
    exchange_groups,
    fanouts,
    gates,
    joins,
    limits,
    runs,
    unique,
    waits,
    workers,
    workflows,
)
from mainspring.store.exchange_groups import GroupMember, Success
from mainspring.store.queries import _fragments
from mainspring.wire.exchange import Progress

from .rows import BEGINNING, a_lane, a_worker, live, queued
from .test_sql_files import FILES, QUERIES, Query, read

pytestmark = pytest.mark.anyio

S = StoredState
Move = tuple[StoredState, StoredState]

WRITES_RUNS = re.compile(r"\b(?:insert\s+into|update|delete\s+from)\s+mainspring\.runs\b")
DECLARED = re.compile(r"-- (creates|moves|keeps): (.+)")
ENDS = {(before, after) for before in LIVE for after in ENDED if may_follow(before, after)} - {
    (S.RUNNING, S.SUCCESS),
    (S.WAITING, S.SUCCESS),
}


@dataclass(frozen=True)
class Declared:
    creates: frozenset[StoredState]
    moves: frozenset[Move]
    keeps: frozenset[StoredState]


@pytest.fixture
def connection(undone: asyncpg.Connection) -> asyncpg.Connection:
    return undone


def states(words: str) -> set[StoredState]:
    return {StoredState[word.strip()] for word in words.split(",")}


def declared(query: Query) -> Declared:
    creates: set[StoredState] = set()
    moves: set[Move] = set()
    keeps: set[StoredState] = set()
    for line in query.comments:
        if found := DECLARED.match(line):
            kind, words = found.groups()
            if kind == "moves":
                before, _, after = words.partition("->")
                moves |= {(StoredState[before.strip()], state) for state in states(after)}
            else:
                (creates if kind == "creates" else keeps).update(states(words))
    return Declared(frozenset(creates), frozenset(moves), frozenset(keeps))


BY_NAME = {query.name: declared(query) for query in QUERIES if WRITES_RUNS.search(query.bare)}


def test_a_statement_declares_what_it_does_to_runs_and_no_other_does() -> None:
    nothing = Declared(frozenset(), frozenset(), frozenset())
    writing = {query.label for query in QUERIES if WRITES_RUNS.search(query.bare)}
    assert {query.label for query in QUERIES if declared(query) != nothing} == writing


def test_what_is_declared_is_the_transition_table() -> None:
    edges = {(before, after) for before, following in TRANSITIONS.items() for after in following}
    assert {move for said in BY_NAME.values() for move in said.moves} == edges
    assert {state for said in BY_NAME.values() for state in said.creates} == INITIAL_STATES
    assert {state for said in BY_NAME.values() for state in said.keeps} <= LIVE
    assert BY_NAME["end_runs"].moves == ENDS


def test_what_is_created_is_what_the_fragments_create() -> None:
    for query in (query for file in FILES for query in read(file)):
        created = {S.QUEUED} if uses(query.sql, "create_runs") else set()
        created |= {S.QUEUED, S.RUNNING} if uses(query.sql, "create_claimed_runs") else set()
        created |= {S.HELD} if uses(query.sql, "create_held_runs") else set()
        created |= {S.QUEUED, S.HELD} if uses(query.sql, "create_limited_runs") else set()
        created |= {S.QUEUED, S.WAITING, S.HELD} if uses(query.sql, "create_step_runs") else set()
        created |= {S.WAITING} if uses(query.sql, "create_container") else set()
        created |= {S.QUEUED, S.HELD} if uses(query.sql, "create_runs_of_jobs") else set()
        created |= {S.WAITING} if uses(query.sql, "waits_of_created") else set()
        created = {S.WAITING} if query.name == "insert_waiting_runs" else created
        created |= {S.SKIPPED} if uses(query.sql, "skipped_runs") else set()
        assert declared(query).creates == created, query.label


def uses(sql: str, fragment: str) -> bool:
    """Whether `sql` has this fragment in it, or a fragment that has."""
    found = set(re.findall(r"\{\{(\w+)", sql)) & _fragments().keys()
    return fragment in found or any(uses(_fragments()[name][1], fragment) for name in found)


# --- on PostgreSQL

WORKER, OTHER_WORKER = UUID(int=7), UUID(int=8)
Act = Callable[[asyncpg.Connection, UUID, int], Awaitable[object]]


async def claim_from_lane(connection: asyncpg.Connection, _: UUID, lane: int) -> object:
    return await runs.claim(connection, [(lane, 1, BEGINNING)], 10, WORKER, 9)


async def claim_from_lanes(connection: asyncpg.Connection, _: UUID, lane: int) -> object:
    return await runs.claim(connection, [(lane, 1, BEGINNING), (lane + 1, 1, BEGINNING)], 10, WORKER, 9)


async def claim_fairly(connection: asyncpg.Connection, _: UUID, lane: int) -> object:
    heads = [(lane, 1, BEGINNING)]
    return await runs.claim_fairly(connection, heads, [DEFAULT_TENANT], {DEFAULT_TENANT: 0}, 10, WORKER, 9)


async def claim_through_gates(connection: asyncpg.Connection, _: UUID, lane: int) -> object:
    heads, passing = [(lane, 1, BEGINNING)], ([1], [5], [2], [5], ["{1,2}"])
    return await runs.claim_through_gates(
        connection, heads, [DEFAULT_TENANT], {DEFAULT_TENANT: 0}, 10, WORKER, 9, passing
    )


async def adopt_running(connection: asyncpg.Connection, _: UUID, __: int) -> object:
    gate = await gates.lock(connection, DEFAULT_TENANT, "default")
    await connection.execute("update mainspring.gates set counted = false")
    return await gates.adopt_running(connection, gate.gate_id)


async def report_successes(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await runs.report_successes(connection, WORKER, [run_id], [1], [0.0], [0.0], [None])


async def exchange_together(connection: asyncpg.Connection, run_id: UUID, lane: int) -> object:
    """One member reports the run, and another one claims."""
    reporting = GroupMember(WORKER, DEFAULT_TENANT, 9, False, 0, 0, [Success(run_id, 1, 0.0, 0.0, None, None)])
    claiming = GroupMember(OTHER_WORKER, DEFAULT_TENANT, 9, False, 10, 0, ())
    return await exchange_groups.exchange_together(connection, [reporting, claiming], [[(lane, 1, BEGINNING)]], 0)


async def requeue(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await runs.requeue(connection, [runs.Requeue(run_id, 1, 0.0)])


async def request_cancels(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await runs.request_cancels(connection, [(run_id, 1)])


async def note_progress(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await workers.note_progress(connection, DEFAULT_TENANT, WORKER, [Progress(run_id, 1, 1, 0.5, "half")])


async def note_starts(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await workers.note_starts(connection, WORKER, [(run_id, 1, 250.0)])


async def assume_started(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await workers.assume_started(connection, WORKER, [run_id])


async def forget_assumed_starts(connection: asyncpg.Connection, _: UUID, __: int) -> object:
    return await workers.forget_assumed_starts(connection, WORKER)


async def redefine_waiting_runs(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    waiting = unique.UniqueWaitingRun(run_id, str(run_id), 1, 1, 0, None, BEGINNING, 1, None)
    with suppress(Conflict):  # it compares the number of rows
        await unique.change_runs(connection, DEFAULT_TENANT, [unique.ChangedRun(waiting, None, True, '{"n": 2}')])
    return None


async def admit(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await limits.admit(connection, [run_id], {}, {})


async def admit_once(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await limits.admit_once(connection, {run_id: datetime.now(UTC)}, [5], [])


async def take_back(connection: asyncpg.Connection, _: UUID, __: int) -> object:
    limit_id = await connection.fetchval(
        "insert into mainspring.limits (tenant_id, name) values (1, 'breaker:task:x') returning limit_id"
    )
    await connection.execute(
        "insert into mainspring.limit_keys (key_id, limit_id, key, opened_at) values (5, $1, '', now())", limit_id
    )
    return await limits.take_back(connection, 5, 10)


async def hold_back(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await limits.hold_back(connection, [limits.HoldBack(run_id, 1, 60.0)])


async def wake(connection: asyncpg.Connection, _: UUID, __: int) -> object:
    return await limits.wake(connection, 10)


async def join_line(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await limits.join_line(connection, [run_id], 6)


async def leave_line(connection: asyncpg.Connection, _: UUID, __: int) -> object:
    return await limits.leave_line(connection, DEFAULT_TENANT, "limited", 5)


async def make_ready(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await joins.make_ready(connection, [joins.Ready(run_id)])


async def hold_ready(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await joins.hold_ready(connection, [joins.Ready(run_id, None, '{"line": [{"name": "task:x"}]}')])


async def succeed_waiting(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await joins.succeed(connection, {run_id: None})


async def skip_waiting(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    waits = "update mainspring.runs set waits_for = $2, rule = $3, follows = $4 where run_id = $1"
    await connection.execute(waits, run_id, 1, int(Rule.ALL_SUCCESS), int(Follows.STEP))
    skipped = await joins.skip(connection, [(1, Skip(1 << Rule.ALL_SUCCESS, "upstream failed: first", "first"))], 10)
    await connection.execute(waits, run_id, None, None, None)
    return skipped


async def begin_flow_runs(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await workflows.begin(connection, [workflows.NewFlow(run_id, 1, 1, 1, run_id, 1)], [1])


async def stop_flows(connection: asyncpg.Connection, run_id: UUID, lane_id: int) -> object:
    await connection.execute(
        """insert into mainspring.flows (flow_id, container, tenant_id, job_id, generation, version, block, prefix,
                                         state, steps, numbers, lane_id, scheduled_for)
           values ($1, $1, 1, 'workflow', 1, 1, 1, $1, 2, 1, 1, $2, now())""",
        run_id,
        lane_id,
    )
    return await workflows.stop(connection, [(run_id, 1, "not today")], FlowState.CANCELLING)


async def open_waits(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await waits.open_all(connection, [waits.NewWait(run_id, 1, None, Wait(WaitKind.SLEEP, seconds=1.0))])


async def suspend_runs(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await waits.suspend(connection, [waits.Suspension(run_id, 1, Wait(WaitKind.CALLBACK))])


async def follow_child(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await child_runs.follow(connection, run_id)


async def open_fanouts(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await fanouts.open_all(connection, [run_id])


async def await_members(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    await connection.execute(
        "insert into mainspring.fanouts (run_id, flow_id, step, state) values ($1, $1, 0, 1)", run_id
    )
    known = {"join_id": 1, "total": 1, "first_number": 1, "at_a_time": None, "failures": None, "targets": None}
    return await fanouts.begin(connection, run_id, **known)  # type: ignore[arg-type]


async def follow_runs(connection: asyncpg.Connection, run_id: UUID, _: int) -> object:
    return await dependencies.follow_runs(connection, DEFAULT_TENANT, [str(run_id)])


ACTS: list[Act] = [
    claim_from_lane, claim_from_lanes, claim_fairly, claim_through_gates, adopt_running, report_successes,
    exchange_together, requeue, request_cancels, note_progress, note_starts, assume_started, forget_assumed_starts,
    admit, admit_once, take_back,
    hold_back, wake, join_line, leave_line, redefine_waiting_runs, make_ready, hold_ready, succeed_waiting,
    skip_waiting, begin_flow_runs, stop_flows, open_waits, suspend_runs, follow_child, open_fanouts,
    await_members, follow_runs,
]  # fmt: skip


async def a_run(connection: asyncpg.Connection, state: StoredState) -> tuple[UUID, int]:
    """A run in that state, with the columns of a claimed run. Return its id and its lane."""
    lane_id = await a_lane(connection, f"work-{uuid7()}")
    [run_id] = await queued(connection, lane_id)
    await connection.execute(
        """update mainspring.runs set state = $2, attempt = 1, fence = 1, worker_id = $3, claim_seq = 1,
                                      claimed_at = clock_timestamp() where run_id = $1""",
        run_id,
        int(state),
        WORKER,
    )
    return run_id, lane_id


async def became(connection: asyncpg.Connection, run_id: UUID) -> StoredState:
    """The state of a run, live or ended."""
    rows = await connection.fetch(
        """select state from mainspring.runs where run_id = $1
           union all select state from mainspring.run_history where run_id = $1""",
        run_id,
    )
    [state] = [StoredState(row["state"]) for row in rows]
    return state


def test_every_statement_that_moves_runs_is_tried_here() -> None:
    moving = {name for name, said in BY_NAME.items() if said.moves or said.keeps}
    assert moving == {act.__name__ for act in ACTS} | {"end_runs", "raise_fences"}  # the last one is about all runs


@asynccontextmanager
async def a_part(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """A part of the test whose changes are undone. The plans and catalogs that the session knows are of use again."""
    part = connection.transaction()
    await part.start()
    yield
    await part.rollback()


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
async def test_a_statement_moves_runs_as_declared_and_leaves_all_others_alone(
    connection: asyncpg.Connection, act: Act
) -> None:
    said = BY_NAME[act.__name__]
    for state in StoredState:
        async with a_part(connection):
            run_id, lane_id = await a_run(connection, state)
            await make_it_fit(connection, act)
            before = await live(connection)
            await act(connection, run_id, lane_id)
            expected = [after for origin, after in said.moves if origin is state]
            assert await became(connection, run_id) is (expected[0] if expected else state), state.name
            changed = bool(expected) or state in said.keeps
            assert (await live(connection) != before) == changed, state.name


async def make_it_fit(connection: asyncpg.Connection, act: Act) -> None:
    """What the run needs, beside its state, for the statement to choose it."""
    if act is exchange_together:
        for worker_id in (WORKER, OTHER_WORKER):
            await a_worker(connection, worker_id=worker_id)
    if act is forget_assumed_starts:
        await connection.execute("update mainspring.runs set started_at = claimed_at")
    if act is begin_flow_runs:
        await connection.execute("update mainspring.runs set job_id = 'workflow'")
    if act is join_line:
        await connection.execute("update mainspring.runs set rule = $1", int(Rule.CONTAINER))
    if act in (stop_flows, open_waits):
        await connection.execute("update mainspring.runs set waits_for = 1")
    if act is redefine_waiting_runs:
        await connection.execute("update mainspring.runs set attempt = 0")
    if act in (hold_back, wake, leave_line):
        await connection.execute(
            "update mainspring.runs set limit_keys = '{5}', job_id = 'limited', wake_at = claimed_at"
        )
    if act is take_back:
        await connection.execute("update mainspring.runs set limit_keys = '{5}', breaker_key = 5")


async def test_a_run_ends_only_as_declared(connection: asyncpg.Connection) -> None:
    for state in StoredState:
        async with a_part(connection):
            await check_ends_of(connection, state)


async def check_ends_of(connection: asyncpg.Connection, state: StoredState) -> None:
    for after in StoredState:
        run_id, _ = await a_run(connection, state)
        for believed in StoredState:
            ending = runs.Ending(run_id, 1, int(after), "reason", None, int(believed))
            legal = believed is state and (state, after) in ENDS
            ended = await runs.end(connection, [ending])
            assert bool(ended) == legal, f"{state.name}, expected {believed.name}, to {after.name}"
            assert await became(connection, run_id) is (after if legal else state)
            if legal:
                break
    letters = await connection.fetchval("select count(*) from mainspring.dead_letters")
    assert letters == ((state, S.FAILED) in ENDS and state is not S.WAITING)
