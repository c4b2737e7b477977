"""Leases: one owner per shard and epoch, rising epochs, and no grant during a fire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from mainspring.domain.schedules.misfire import FirePlan
from mainspring.kernel.ids import uuid7
from mainspring.store import fires, leases
from mainspring.store.pool import HOT_SETTINGS

from .rows import a_job, a_lane, every, job_row, now_of

pytestmark = pytest.mark.anyio

TTL = 60.0
SHARDS = [3, 5, 8]


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The connection of a second node, with a short lock timeout."""
    opened = await asyncpg.connect(database_url, server_settings={"lock_timeout": "30s"})
    yield opened
    await opened.close()


async def expire(connection: asyncpg.Connection, *shards: int) -> None:
    await connection.execute(
        "update mainspring.shard_leases set expires_at = clock_timestamp() - interval '1 ms' where shard = any ($1)",
        list(shards),
    )


async def lease(connection: asyncpg.Connection, shard: int) -> leases.LeaseRow:
    [row] = [row for row in await leases.list_leases(connection) if row.shard == shard]
    return row


async def test_a_grant_raises_the_epoch_by_one_and_ends_in_the_future(connection: asyncpg.Connection) -> None:
    node = uuid7()
    before = await now_of(connection)
    assert await leases.take(connection, node, SHARDS, TTL) == dict.fromkeys(SHARDS, 1)
    row = await lease(connection, 5)
    assert (row.owner, row.epoch) == (node, 1)
    ttl = timedelta(seconds=TTL)
    assert before + ttl <= row.expires_at <= await now_of(connection) + ttl
    untouched = await lease(connection, 4)
    assert (untouched.owner, untouched.epoch) == (None, 0)


async def test_what_is_held_is_not_granted_again_not_even_to_its_owner(connection: asyncpg.Connection) -> None:
    node = uuid7()
    await leases.take(connection, node, SHARDS, TTL)
    assert await leases.take(connection, uuid7(), SHARDS, TTL) == {}
    assert await leases.take(connection, node, SHARDS, TTL) == {}


async def test_an_expired_lease_is_taken_over_under_a_higher_epoch(connection: asyncpg.Connection) -> None:
    old, new = uuid7(), uuid7()
    await leases.take(connection, old, SHARDS, TTL)
    await expire(connection, 5)
    assert await leases.take(connection, new, SHARDS, TTL) == {5: 2}
    assert await leases.renew(connection, old, dict.fromkeys(SHARDS, 1), TTL) == {3: 1, 8: 1}


async def test_a_renewal_moves_the_end_and_nothing_else(connection: asyncpg.Connection) -> None:
    node = uuid7()
    await leases.take(connection, node, [5], TTL)
    before = await lease(connection, 5)
    assert await leases.renew(connection, node, {5: 1}, 2 * TTL) == {5: 1}
    after = await lease(connection, 5)
    assert (after.owner, after.epoch) == (before.owner, before.epoch)
    assert after.expires_at > before.expires_at


@pytest.mark.parametrize("wrong", ["owner", "epoch", "expired"])
async def test_a_renewal_needs_owner_and_epoch_and_a_lease_that_has_not_expired(
    connection: asyncpg.Connection, wrong: str
) -> None:
    node = uuid7()
    await leases.take(connection, node, [5], TTL)
    asking: tuple[UUID, int] = (uuid7() if wrong == "owner" else node, 2 if wrong == "epoch" else 1)
    if wrong == "expired":
        await expire(connection, 5)
    before = await lease(connection, 5)
    assert await leases.renew(connection, asking[0], {5: asking[1]}, TTL) == {}
    assert await lease(connection, 5) == before


async def test_a_release_hands_over_at_once(connection: asyncpg.Connection) -> None:
    old, new = uuid7(), uuid7()
    await leases.take(connection, old, SHARDS, TTL)
    assert await leases.release(connection, old, {5: 1}) == [5]
    assert await leases.take(connection, new, SHARDS, TTL) == {5: 2}


async def test_a_release_of_what_is_no_longer_ours_takes_nothing_from_the_new_owner(
    connection: asyncpg.Connection,
) -> None:
    old, new = uuid7(), uuid7()
    await leases.take(connection, old, [5], TTL)
    await expire(connection, 5)
    await leases.take(connection, new, [5], TTL)
    assert await leases.release(connection, old, {5: 1}) == []
    assert (await lease(connection, 5)).owner == new


async def test_epochs_never_repeat_over_any_number_of_hands(connection: asyncpg.Connection) -> None:
    seen = []
    for turn in range(6):
        node = uuid7()
        granted = await leases.take(connection, node, [5], TTL)
        seen.append(granted[5])
        await (leases.release(connection, node, granted) if turn % 2 else expire(connection, 5))
    assert seen == [1, 2, 3, 4, 5, 6]


async def test_a_shard_in_the_middle_of_a_fire_is_renewed_but_not_granted_until_it_ends(
    database_url: str, connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    """So no write under the old epoch follows the first one under the new epoch."""
    now = await now_of(connection)
    await a_job(connection, await a_lane(connection), "nightly", every(60, now), now)
    shard = (await job_row(connection, "nightly"))["shard"]
    node, next_node = uuid7(), uuid7()
    held = await leases.take(connection, node, [shard], TTL)
    due = [fires.DueAgain(1, "nightly", 1, now, FirePlan([now], [], now, None))]

    firing = await asyncpg.connect(database_url, server_settings=HOT_SETTINGS)
    transaction = firing.transaction()
    await transaction.start()
    await fires.fire_recurring(firing, node, held, due)

    assert await leases.renew(other, node, held, TTL) == held
    await expire(other, shard)
    assert await leases.take(other, next_node, [shard], TTL) == {}
    await transaction.commit()
    assert await leases.take(other, next_node, [shard], TTL) == {shard: 2}
    await firing.close()


async def test_a_node_that_is_seen_is_alive_until_it_falls_silent_or_says_good_bye(
    connection: asyncpg.Connection,
) -> None:
    first, second, third = sorted(uuid7() for _ in range(3))
    for node in (first, second, third):
        await leases.node_seen(connection, node, "somewhere")
    await connection.execute(
        "update mainspring.nodes set seen_at = seen_at - interval '10 min' where node_id = $1", second
    )
    assert await leases.live_nodes(connection, 300.0) == [first, third]
    await leases.node_seen(connection, second, "somewhere")
    await leases.forget_node(connection, third)
    assert await leases.live_nodes(connection, 300.0) == [first, second]


async def test_nodes_that_died_long_ago_are_forgotten(connection: asyncpg.Connection) -> None:
    gone, stays = uuid7(), uuid7()
    for node in (gone, stays):
        await leases.node_seen(connection, node, "somewhere")
    await connection.execute("update mainspring.nodes set seen_at = seen_at - interval '2 h' where node_id = $1", gone)
    await leases.forget_node(connection, uuid7())
    assert [row["node_id"] for row in await connection.fetch("select node_id from mainspring.nodes")] == [stays]
