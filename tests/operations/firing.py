"""One turn of the scheduler: leases, due-scan, wheel and fire."""

from __future__ import annotations

import asyncpg

from mainspring.roles.assembly import Assembly


async def fire_due(assembly: Assembly, connection: asyncpg.Connection) -> int:
    """Fire the jobs that are due now. Return how many runs were created."""
    node = assembly.node
    assert node is not None
    await node.leaser.run_once(connection)
    await node.loader.run_once()
    # Two more ticks, because the wheel returns a job up to one tick after its due time.
    return await node.firer.fire(node._wheel.advance(node._clock.timestamp() + 0.01))


async def make_due(connection: asyncpg.Connection, job_id: str) -> None:
    """Make a recurring job due now."""
    await connection.execute("update mainspring.jobs set next_fire_at = clock_timestamp() where job_id = $1", job_id)


async def let_backoff_pass(connection: asyncpg.Connection) -> None:
    """Make every run that backs off ready."""
    await connection.execute(
        "update mainspring.runs set ready_at = clock_timestamp() - interval '1 second' where state = 1"
    )
