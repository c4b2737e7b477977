"""The faults. Each breaks something, repairs it if necessary, and is recorded with its target and its times."""

from __future__ import annotations

import asyncio
import os
import signal

from tests.cluster.children import ROLES, SCHEDULER, SERVER, WORKER
from tests.cluster.history import KILL, RESCUE, TTL
from tests.cluster.injector import Fault, Injector
from tests.cluster.proxy import ProxyLink, Way
from tests.cluster.stopped_changes import stop_server_in
from tests.cluster.tasks import shell_command
from tests.processes.cluster import eventually, parent_watchdog, worker_process

_AN_HOUR = 3661.0  # and a minute, so that it is the other beat table's turn


def kill(role: str) -> Fault:
    async def fault(injector: Injector) -> None:
        child = await injector.living(injector.pick(role))
        async with injector.fault(f"kill -9 {role}", child.label):
            child.kill()

    return fault


async def kill_worker_process(injector: Injector) -> None:
    """The process that runs the tasks, below the one that was started."""
    child = await injector.living(injector.pick(WORKER))
    async with injector.fault("kill -9 worker process", child.label):
        child.wanted_end = True
        os.kill(worker_process(child.pid), signal.SIGKILL)


async def kill_parent_watchdog(injector: Injector) -> None:
    """The worker goes on. After that it is killed: nobody gives notice of it, and the lease applies."""
    child = await injector.living(injector.pick(WORKER))
    async with injector.fault("kill -9 parent watchdog, then worker", child.label):
        os.kill(parent_watchdog(child.pid), signal.SIGKILL)
        await asyncio.sleep(1.0)
        child.kill()


async def kill_all(injector: Injector) -> None:
    children = [await injector.living(seat) for seat in injector.arena.seats]
    async with injector.fault("kill -9 all", f"{len(children)} processes", whole=True, from_end=True):
        for child in children:
            child.kill()

        async def gone() -> bool:
            return not any(child.alive for child in children)

        await eventually(gone, 60, "all are dead")
        await injector.arena.all_ready()


def pause(role: str, seconds: float) -> Fault:
    """SIGSTOP, and SIGCONT after a while. A worker's watchdog and children continue."""

    async def fault(injector: Injector) -> None:
        child = await injector.living(injector.pick(role))
        async with injector.fault(f"SIGSTOP {role} {seconds:g} s", child.label):
            child.pause()
            await asyncio.sleep(seconds)
            child.go_on()

    return fault


async def pause_worker_with_child(injector: Injector) -> None:
    """Stop a worker during a shell run that would continue long after the run was given to another worker."""
    arena = injector.arena
    call = await injector.clients.submit({"command": shell_command(str(arena.ledger), 200), "timeout": "60s"})
    if call.result != "ok":
        return
    found: list[str] = []

    async def begun() -> bool:
        rows = await arena.ask(
            "select w.name from mainspring.runs r join mainspring.workers w using (worker_id) "
            "where r.run_id::text = $1 and r.claimed_at < clock_timestamp() - interval '0.3 s'",
            call.answer["job_id"],
        )
        found[:] = [row["name"] for row in rows]
        return bool(found)

    await eventually(begun, 90, "the shell run has begun")
    child = next((seat.child for seat in arena.seats_of(WORKER) if seat.child and seat.child.label == found[0]), None)
    if child is None:
        return
    async with injector.fault("SIGSTOP worker, its child runs on", child.label):
        child.pause()
        await asyncio.sleep(RESCUE + 8.0)  # much longer than a watchdog can be late on a busy machine
        child.go_on()


async def crash_postgres(injector: Injector) -> None:
    down = injector.chance.uniform(0.2, 3.0)
    async with injector.fault("stop -m immediate PostgreSQL", f"{down:.1f} s", whole=True, cuts=True, from_end=True):
        await injector.arena.restart_database(down)


async def fail_over(injector: Injector) -> None:
    """The primary dies, and its synchronous standby takes over. Nothing that was acknowledged is lost."""
    arena = injector.arena
    async with arena.databases.lock:
        standby = await arena.databases.make_standby()
        async with injector.fault("failover of PostgreSQL", "a standby", whole=True, cuts=True, from_end=True):
            old = await arena.databases.fail_over(standby)
            arena.lead_to(arena.postgres)
        await arena.databases.forget(old)


async def fail_over_and_come_back(injector: Injector) -> None:
    """The same, and then the old primary comes back and takes itself for the primary: one process still finds it. It
    has no standby any more, so that it acknowledges nothing."""
    arena = injector.arena
    async with arena.databases.lock:
        standby = await arena.databases.make_standby()
        async with injector.fault("failover of PostgreSQL", "a standby", whole=True, cuts=True, from_end=True):
            old = await arena.databases.fail_over(standby)
            arena.lead_to(arena.postgres)
        for _ in old.starting():
            await asyncio.sleep(0.02)
        link = _link(injector, "PostgreSQL")
        seconds = injector.chance.uniform(1.0, 4.0 * TTL)
        async with injector.fault("old primary comes back", f"{link.name}, {seconds:.1f} s", cuts=True, from_end=True):
            arena.lead_to(old, only=link)
            await asyncio.sleep(seconds)
            arena.lead_to(arena.postgres, only=link)
        await arena.databases.forget(old)


async def kill_backends(injector: Injector) -> None:
    every = injector.chance.choice((1, 2, 3))
    async with injector.fault("kill backends", f"every {every}." if every > 1 else "all", whole=True):
        await injector.arena.ask(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name like 'mainspring %' and pid % $1 = 0",
            every,
        )


def break_link(side: str, way: Way, *, deliver: bool = False) -> Fault:
    """Cut one process from PostgreSQL, or one worker or the clients from the servers, for longer than any lease."""

    async def fault(injector: Injector) -> None:
        link = _link(injector, side)
        seconds = injector.chance.uniform(1.0, 3.0 * TTL)
        delay = injector.chance.uniform(0.05, 0.6)
        late = ", delivered late" if deliver else ""
        words, cuts = f"{link.name}, {seconds:.1f} s", side == "PostgreSQL"
        # A node with a slow connection keeps its leases and is late. With a dead connection other nodes take over.
        slow = way is Way.DELAY
        async with injector.fault(f"{side} link {way}{late}", words, whole=slow, cuts=cuts, from_end=True):
            injector.arena.links.disturb(link, way, delay=delay if slow else 0.0)
            await asyncio.sleep(seconds)
            injector.arena.links.heal(link, deliver=deliver)

    return fault


def strand(side: str) -> Fault:
    """The existing connections of one process transfer nothing and are never closed. New connections work."""

    async def fault(injector: Injector) -> None:
        link = _link(injector, side)
        async with injector.fault(f"{side} link stranded", link.name, cuts=side == "PostgreSQL"):
            injector.arena.links.strand(link)

    return fault


def _link(injector: Injector, side: str) -> ProxyLink:
    arena = injector.arena
    if side == "PostgreSQL":
        return arena.database_link(injector.chance.choice(arena.seats_of(SCHEDULER) + arena.seats_of(SERVER)))
    names = [seat.name for seat in arena.seats_of(WORKER)]
    return arena.balancer(injector.chance.choice([*names, "clients"]))


async def wrong_clock(injector: Injector) -> None:
    """Restart one process with a clock that is an hour off, and repair it after a while."""
    seat = injector.pick(injector.chance.choice(ROLES))
    shift = injector.chance.choice((_AN_HOUR, -_AN_HOUR))
    seat.clock_shift = shift
    child = await injector.living(seat)
    async with injector.fault("one clock an hour off", f"{seat.name}, {shift:+.0f} s"):
        child.kill()
    child = await injector.living(seat)
    await asyncio.sleep(2.0)
    seat.clock_shift = 0.0
    async with injector.fault("one clock right again", seat.name):
        child.terminate()


def drain(role: str) -> Fault:
    async def fault(injector: Injector) -> None:
        child = await injector.living(injector.pick(role))
        async with injector.fault(f"SIGTERM {role}", child.label):
            child.terminate()

    return fault


FAULTS: dict[str, Fault] = {
    **{f"kill-{role}": kill(role) for role in ROLES},
    "kill-worker-process": kill_worker_process,
    "kill-parent-watchdog": kill_parent_watchdog,
    "kill-all": kill_all,
    **{f"pause-scheduler-{times:g}": pause(SCHEDULER, times * TTL) for times in (0.9, 1.1, 5)},
    "pause-worker-0.9": pause(WORKER, 0.9 * KILL),
    "pause-worker-1.1": pause(WORKER, 1.1 * RESCUE),
    "pause-worker-5": pause(WORKER, 5 * KILL),
    "pause-server": pause(SERVER, 2 * TTL),
    "stop-server-in-patch": stop_server_in("PATCH"),
    "stop-server-in-cancel": stop_server_in("DELETE"),
    "pause-worker-with-child": pause_worker_with_child,
    "crash-postgres": crash_postgres,
    "failover": fail_over,
    "failover-old-primary": fail_over_and_come_back,
    "kill-backends": kill_backends,
    **{
        f"{side.lower()}-{way}": break_link(side, way)
        for side in ("PostgreSQL", "server")
        for way in Way
        if way is not Way.PASS
    },
    "postgresql-half-open-late": break_link("PostgreSQL", Way.HALF_OPEN, deliver=True),
    "server-one-way-late": break_link("server", Way.ANSWERS_HELD, deliver=True),
    "postgresql-stranded": strand("PostgreSQL"),
    "server-stranded": strand("server"),
    "wrong-clock": wrong_clock,
    **{f"drain-{role}": drain(role) for role in ROLES},
}
