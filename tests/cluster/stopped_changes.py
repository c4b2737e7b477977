"""Faults: a server is stopped (SIGSTOP) in the middle of a change, while its transaction holds the rows of a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg

from mainspring.store.pool import AWAY
from mainspring.store.queries import render
from tests.cluster.children import SERVER
from tests.cluster.injector import Fault, Injector
from tests.cluster.load import Clients
from tests.processes.cluster import eventually

_PATIENCE = 60.0
_SHORTEST, _LONGEST = 3.0, 8.0  # seconds; PostgreSQL ends the transaction after 2
# Backends of changes that wait for this one.
_WAITING = """
    select from pg_stat_activity
    where $1 = any (pg_blocking_pids(pid)) and application_name in ('mainspring lanes', 'mainspring server reads')
"""


def stop_server_in(verb: str) -> Fault:
    """`verb` is PATCH or DELETE. The change is sent to one server. It gets as far as a lock that is held here, the
    server is stopped, and the lock is released."""

    async def fault(injector: Injector) -> None:
        arena, clients = injector.arena, injector.clients
        seat = injector.pick(SERVER)
        job_id = f"held-{injector.chance.randrange(10**9)}"
        body = {"task": "note", "job_id": job_id, "idempotency_key": job_id, "overlap": "allow"}
        made = await clients.submit({**body, "schedule": "* * * * * *", "payload": {"seconds": 1.0}})
        if made.result != "ok":
            return
        child = await injector.living(seat)
        with suppress(*AWAY):  # without PostgreSQL there is no transaction to be stopped in
            async with _held(injector, verb, job_id) as holder:
                path = f"http://127.0.0.1:{arena.port(seat)}/v1/jobs/{job_id}"
                change = asyncio.create_task(_send(clients, verb, path, job_id))

                async def waits() -> bool:
                    return change.done() or bool(await arena.ask(_WAITING, holder.get_server_pid()))

                await eventually(waits, _PATIENCE, "the change is in the middle")
                seconds = injector.chance.uniform(_SHORTEST, _LONGEST)
                async with injector.fault(f"SIGSTOP server in a {verb}", child.label):
                    child.pause()
                    try:
                        with suppress(*AWAY):
                            await holder.execute("rollback")
                        await asyncio.sleep(seconds)
                    finally:
                        child.go_on()
            await change
        await clients.cancel(job_id)

    return fault


async def _send(clients: Clients, verb: str, path: str, job_id: str) -> None:
    if verb == "PATCH":
        await clients.call("change", verb, path, {"queue": job_id}, target=job_id)  # a new queue has a new lane
    else:
        await clients.call("cancel", verb, path, target=job_id)


@asynccontextmanager
async def _held(injector: Injector, verb: str, job_id: str) -> AsyncIterator[asyncpg.Connection]:
    """A transaction with a lock that the change needs after it has locked the job: the lock for new lanes, or a run of
    the job."""
    holder = await asyncpg.connect(injector.arena.postgres.url())

    async def run() -> bool:
        rows = await holder.fetch(
            "select run_id from mainspring.runs where job_id = $1 order by run_id desc limit 1 "
            "for no key update skip locked",
            job_id,
        )
        return bool(rows)

    try:
        await holder.execute("begin")
        if verb == "PATCH":
            await holder.execute(render("select pg_advisory_xact_lock({{lock_key('lanes')}})"))
        else:
            await eventually(run, _PATIENCE, f"a run of {job_id}")
        yield holder
    finally:
        holder.terminate()
