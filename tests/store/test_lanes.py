"""Lanes: one id for one (tenant, queue, priority, task) in every process, also after a rollback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store.lanes import LaneKey, LaneRegistry
from mainspring.store.pool import Store, open_store
from mainspring.store.queries import load

from .rows import until_blocked

pytestmark = pytest.mark.anyio


def key(task: str) -> LaneKey:
    return (DEFAULT_TENANT, "default", 1, task, "")


@pytest.fixture
async def other_store(database_url: str) -> AsyncIterator[Store]:
    """The pools of another process."""
    opened = await open_store(database_url)
    yield opened
    await opened.close()


async def test_a_lane_is_interned_once(store: Store, connection: asyncpg.Connection) -> None:
    registry = LaneRegistry(store)
    first = await registry.intern(connection, [key("a"), key("b"), key("a")])
    assert set(first) == {key("a"), key("b")}
    assert await registry.intern(connection, [key("b")]) == {key("b"): first[key("b")]}
    assert await connection.fetchval("select count(*) from mainspring.lanes") == 2


async def test_processes_that_intern_the_same_lanes_at_once_agree(store: Store, other_store: Store) -> None:
    keys = [key(f"task-{number}") for number in range(20)]
    async with store.hot.acquire() as one, other_store.hot.acquire() as two:
        answers = await asyncio.gather(
            LaneRegistry(store).intern(one, keys), LaneRegistry(other_store).intern(two, reversed(keys))
        )
    assert answers[0] == answers[1]
    assert len(set(answers[0].values())) == 20


async def test_a_refresh_finds_what_others_have_interned(store: Store, connection: asyncpg.Connection) -> None:
    ours, theirs = LaneRegistry(store), LaneRegistry(store)
    lanes = await theirs.intern(connection, [key("a"), key("b")])
    assert ours.revision == 0
    await ours.refresh()
    assert ours.revision == 2
    assert ours.known(key("b")) == lanes[key("b")]
    assert [lane.task for lane in ours.eligible(DEFAULT_TENANT, ["default"], ["b", "c"], {})] == ["b"]


async def test_a_lane_that_is_not_known_yet_is_looked_up(store: Store, connection: asyncpg.Connection) -> None:
    lanes = await LaneRegistry(store).intern(connection, [key("a")])
    assert (await LaneRegistry(store).get(lanes[key("a")])).task == "a"


async def test_a_lane_outlives_the_transaction_in_which_it_was_asked_for(
    store: Store, connection: asyncpg.Connection
) -> None:
    """The process remembers the lane, so the database must keep it."""
    registry = LaneRegistry(store)
    transaction = connection.transaction()
    await transaction.start()
    lanes = await registry.intern(connection, [key("a")])
    await transaction.rollback()
    assert (await LaneRegistry(store).get(lanes[key("a")])).task == "a"


async def test_no_lane_is_passed_over_because_a_later_one_was_committed_first(
    store: Store, connection: asyncpg.Connection, database_url: str
) -> None:
    """Ids are assigned before the commit. Only one transaction interns at a time, so a refresh that has seen an id has
    seen all lower ones."""
    slow = await asyncpg.connect(database_url)
    transaction = slow.transaction()
    await transaction.start()
    await slow.execute(load("lanes")["intern"], *key("slow"))
    registry, reader = LaneRegistry(store), LaneRegistry(store)
    quick = await asyncpg.connect(database_url)
    interning = asyncio.create_task(registry.intern(quick, [key("quick")]))
    await until_blocked(connection, quick.get_server_pid())
    await reader.refresh()
    await transaction.commit()
    await interning
    await reader.refresh()
    assert {lane.task for lane in reader.eligible(DEFAULT_TENANT, ["default"], ["quick", "slow"], {})} == {
        "quick",
        "slow",
    }
    for opened in (slow, quick):
        await opened.close()
