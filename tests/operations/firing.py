"""One turn of the scheduler, by hand: leases, due-scan, wheel, fire."""

from __future__ import annotations

import asyncpg

from mainspring.roles.assembly import Assembly


async def fire_due(assembly: Assembly, connection: asyncpg.Connection) -> int:
    """Fire what is due at this moment; returns how many runs were born."""
    node = assembly.node
    assert node is not None
    await node.leaser.run_once(connection)
    await node.loader.run_once()
    # Two ticks of the wheel on top: it hands a job out up to one tick after its moment.
    return await node.firer.fire(node._wheel.advance(node._clock.timestamp() + 0.01))


async def make_due(connection: asyncpg.Connection, job_id: str) -> None:
    """Let a recurring job's next fire be this very moment."""
    await connection.execute("update mainspring.jobs set next_fire_at = clock_timestamp() where job_id = $1", job_id)


async def let_backoff_pass(connection: asyncpg.Connection) -> None:
    """Let every run that backs off be ready, as if its time had come."""
    await connection.execute(
        "update mainspring.runs set ready_at = clock_timestamp() - interval '1 second' where state = 1"
    )
