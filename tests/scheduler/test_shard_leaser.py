"""Shard leases: every shard has one owner, and a node does not use a lease after it has expired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.kernel.clock import DatabaseClock, ManualClock
from mainspring.kernel.config import SHARD_COUNT, Timing
from mainspring.kernel.ids import uuid7
from mainspring.scheduler.shard_leaser import LeaseThread, ShardLeaser, rendezvous
from mainspring.store import leases
from tests.store.rows import until_blocked

TIMING = Timing(lease_ttl=600.0)  # no lease expires by itself, even on a slow machine
SHARDS = range(SHARD_COUNT)
node_sets = st.sets(st.uuids(), min_size=1, max_size=8).map(sorted)


@given(node_sets)
def test_every_shard_has_exactly_one_owner(nodes: list[UUID]) -> None:
    owned = [shard for node in nodes for shard in rendezvous(SHARDS, nodes, node)]
    assert sorted(owned) == list(SHARDS)


@pytest.mark.slow
@given(node_sets, st.uuids())
def test_a_new_node_takes_shards_and_moves_none_between_the_others(nodes: list[UUID], new: UUID) -> None:
    grown = sorted({*nodes, new})
    for node in nodes:
        if node != new:
            assert rendezvous(SHARDS, grown, node) <= rendezvous(SHARDS, nodes, node)
    gained = rendezvous(SHARDS, grown, new)
    lost = set().union(*(rendezvous(SHARDS, nodes, n) - rendezvous(SHARDS, grown, n) for n in nodes if n != new))
    assert new in nodes or lost == gained


@given(node_sets, st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_are_read_does_not_matter(nodes: list[UUID], random: object) -> None:
    shuffled = list(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert rendezvous(SHARDS, shuffled, nodes[0]) == rendezvous(SHARDS, nodes, nodes[0])


@given(node_sets, st.uuids())
def test_a_node_that_is_not_listed_yet_counts_itself(nodes: list[UUID], me: UUID) -> None:
    assert rendezvous(SHARDS, nodes, me) == rendezvous(SHARDS, sorted({*nodes, me}), me)


class Node:
    """A leaser with its own connection and a clock that stands still."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
        self.database_clock = DatabaseClock(self.clock)
        self.leaser = ShardLeaser(uuid7(), self.clock, self.database_clock, TIMING)
        self.connection = connection

    async def round(self) -> int:
        return await self.leaser.run_once(self.connection)

    @property
    def held(self) -> dict[int, int]:
        return self.leaser.held()


NewNode = Callable[[], Awaitable[Node]]


@pytest.fixture
async def new_node(database_url: str) -> AsyncIterator[NewNode]:
    opened: list[asyncpg.Connection] = []

    async def make() -> Node:
        opened.append(await asyncpg.connect(database_url))
        return Node(opened[-1])

    yield make
    for connection in opened:
        await connection.close()


async def owners(connection: asyncpg.Connection) -> dict[int, tuple[UUID | None, int]]:
    return {row.shard: (row.owner, row.epoch) for row in await leases.list_leases(connection)}


@pytest.mark.anyio
class TestOneNode:
    async def test_a_lonely_node_takes_every_shard_in_its_first_round(self, new_node: NewNode) -> None:
        node = await new_node()
        assert node.held == {}
        assert await node.round() == SHARD_COUNT
        assert node.held == dict.fromkeys(SHARDS, 1)

    async def test_a_round_tells_the_databases_time(self, new_node: NewNode) -> None:
        node = await new_node()
        await node.round()
        now = await node.connection.fetchval("select clock_timestamp()")
        assert 0 <= (now - node.database_clock.now()).total_seconds() < 10

    async def test_renewal_keeps_the_epoch_and_prolongs_the_trust(self, new_node: NewNode) -> None:
        node = await new_node()
        for _ in range(5):
            assert await node.round() == SHARD_COUNT
            node.clock.advance(TIMING.lease_renewal)
            assert node.held == dict.fromkeys(SHARDS, 1)

    async def test_nothing_is_trusted_once_the_ttl_less_the_margin_has_passed(self, new_node: NewNode) -> None:
        node = await new_node()
        await node.round()
        node.clock.advance(TIMING.lease_ttl - TIMING.lease_margin - 0.001)
        assert len(node.held) == SHARD_COUNT
        node.clock.advance(0.001)
        assert node.held == {}

    async def test_trust_counts_from_before_the_renewal_was_sent(self, new_node: NewNode) -> None:
        """The lease in the database began after the request was sent, however long the answer takes."""
        node = await new_node()
        await node.round()
        blocker = (await new_node()).connection
        async with blocker.transaction():
            await blocker.execute("select from mainspring.shard_leases for update")
            renewal = asyncio.create_task(node.round())
            await until_blocked(blocker, node.connection.get_server_pid())
            node.clock.advance(2.0)
        assert await renewal == SHARD_COUNT
        node.clock.advance(TIMING.lease_ttl - TIMING.lease_margin - 2.0)
        assert node.held == {}

    async def test_a_node_steps_down_from_what_was_taken_from_it(self, new_node: NewNode) -> None:
        """Its clock stood still while another node took the shard. The renewal reports that."""
        node, thief = await new_node(), uuid7()
        await node.round()
        await node.connection.execute(
            "update mainspring.shard_leases set owner = $1, epoch = epoch + 1 where shard in (3, 5)", thief
        )
        assert await node.round() == SHARD_COUNT - 2
        assert node.held == dict.fromkeys(set(SHARDS) - {3, 5}, 1)
        assert (await owners(node.connection))[3] == (thief, 2)

    async def test_what_lapsed_is_taken_again_under_a_new_epoch(self, new_node: NewNode) -> None:
        node = await new_node()
        await node.round()
        await node.connection.execute("update mainspring.shard_leases set expires_at = '-infinity' where shard = 3")
        assert await node.round() == SHARD_COUNT
        assert node.held[3] == 2
        assert node.held[4] == 1

    async def test_a_failed_renewal_leaves_the_trust_to_run_out(self, new_node: NewNode) -> None:
        node = await new_node()
        await node.round()
        await node.connection.close()
        with pytest.raises(asyncpg.InterfaceError):
            await node.round()
        assert len(node.held) == SHARD_COUNT
        node.clock.advance(TIMING.lease_ttl)
        assert node.held == {}


@pytest.mark.anyio
class TestTwoNodes:
    async def test_two_nodes_split_the_shards(self, new_node: NewNode) -> None:
        first, second = await new_node(), await new_node()
        for node in (first, second, first, second):
            await node.round()
        assert len(first.held) > 20 and len(second.held) > 20
        assert sorted([*first.held, *second.held]) == list(SHARDS)
        stored = await owners(first.connection)
        for node in (first, second):
            assert {shard: stored[shard] for shard in node.held} == {
                shard: (node.leaser.node_id, epoch) for shard, epoch in node.held.items()
            }

    async def test_a_handed_over_shard_is_let_go_before_it_is_taken(self, new_node: NewNode) -> None:
        first, second = await new_node(), await new_node()
        await first.round()
        assert await second.round() == 0
        await first.round()
        kept = set(first.held)
        await second.round()
        assert set(second.held) == set(SHARDS) - kept
        assert set(second.held.values()) == {2}

    async def test_a_node_that_releases_leaves_everything_to_the_other_after_one_round(self, new_node: NewNode) -> None:
        first, second = await new_node(), await new_node()
        for node in (first, second, first, second):
            await node.round()
        await first.leaser.release_all(first.connection)
        assert first.held == {}
        assert await second.round() == SHARD_COUNT

    async def test_a_node_that_fell_silent_loses_everything_once_its_leases_have_lapsed(
        self, new_node: NewNode
    ) -> None:
        first, second = await new_node(), await new_node()
        for node in (first, second, first, second):
            await node.round()
        theirs = set(first.held)
        await second.connection.execute(
            "update mainspring.nodes set seen_at = seen_at - interval '600 s' where node_id = $1", first.leaser.node_id
        )
        await second.round()
        assert theirs.isdisjoint(second.held)  # silent, but its leases are still valid
        await second.connection.execute(
            "update mainspring.shard_leases set expires_at = clock_timestamp() where owner = $1", first.leaser.node_id
        )
        assert await second.round() == SHARD_COUNT

    async def test_a_node_that_does_not_get_to_the_end_of_its_round_is_not_seen(self, new_node: NewNode) -> None:
        """It is connected but too slow to hold leases. The others must not reserve shards for it."""
        slow, other = await new_node(), await new_node()
        async with other.connection.transaction():
            await other.connection.execute("lock table mainspring.shard_leases in access exclusive mode")
            turn = asyncio.create_task(slow.round())
            await until_blocked(other.connection, slow.connection.get_server_pid())
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
        assert await leases.live_nodes(other.connection, TIMING.lease_ttl) == []

    async def test_the_silent_node_finds_that_it_lost_everything(self, new_node: NewNode) -> None:
        first, second = await new_node(), await new_node()
        await first.round()
        await second.connection.execute("delete from mainspring.nodes")
        await second.connection.execute("update mainspring.shard_leases set expires_at = clock_timestamp()")
        assert await second.round() == SHARD_COUNT
        assert await first.round() == 0
        assert first.held == {}


@pytest.mark.anyio
async def test_the_thread_takes_the_shards_and_gives_them_back_when_it_stops(
    database_url: str, new_node: NewNode
) -> None:
    node = await new_node()
    thread = LeaseThread(node.leaser, database_url, TIMING)
    thread.start()
    await thread.first_round()
    assert len(node.held) == SHARD_COUNT
    await thread.stop()
    assert node.held == {}
    assert set(await owners(node.connection)) == set(SHARDS)
    assert {owner for owner, _ in (await owners(node.connection)).values()} == {None}
