"""Failover of PostgreSQL under load: how long nothing is written, and whether anything is lost or happens twice.

Three nodes of Patroni, two servers with their schedulers, and a worker. In turn PostgreSQL of the primary is killed,
its machine loses power, its machine hangs and wakes up as an old primary, and Patroni is asked for another primary.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import asyncpg
import uvloop

from mainspring.bench.arena import Arena, arena_at, until
from mainspring.bench.cron_stream import CronStream
from mainspring.bench.figures import percentile, progress, show
from mainspring.bench.patroni.node import PatroniNode
from mainspring.bench.patroni.nodes import PatroniNodes, patroni_nodes
from mainspring.bench.patroni.probe import PromotionProbe
from mainspring.bench.patroni.submissions import Submissions
from mainspring.domain.errors import Unavailable

PER_SECOND = 50.0
_CRONS = 16
_BEFORE, _AFTER = 2.0, 3.0  # seconds of the load before a fault and after the recovery
_RECOVERY = 120.0


async def crash(nodes: PatroniNodes, primary: PatroniNode) -> None:
    """kill -9 of the postmaster. Patroni lives and gives up the lock."""
    primary.kill_postgres()


async def lose_power(nodes: PatroniNodes, primary: PatroniNode) -> None:
    """Everything of the node is killed, so the lock has to expire."""
    primary.kill()


async def hang(nodes: PatroniNodes, primary: PatroniNode) -> None:
    """Everything of the node is stopped. Afterwards it wakes up, and still is a primary for its own PostgreSQL."""
    primary.freeze(True)


async def switch_over(nodes: PatroniNodes, primary: PatroniNode) -> None:
    await nodes.switch_over(primary)


FAULTS: dict[str, Callable[[PatroniNodes, PatroniNode], Awaitable[None]]] = {
    "crash": crash,
    "power": lose_power,
    "hang": hang,
    "switchover": switch_over,
}


class Drill:
    def __init__(self, nodes: PatroniNodes, arena: Arena, submissions: Submissions) -> None:
        self._nodes = nodes
        self._arena = arena
        self._submissions = submissions
        self.without_writes: dict[str, list[float]] = {name: [] for name in FAULTS}
        self.back: list[float] = []
        self.refused: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self.given_up: str | None = None

    async def round(self, fault: str) -> None:
        """One failover. Returns when the node that was lost follows again."""
        submissions = self._submissions
        await self._nodes.until_healthy()
        primary = await self._nodes.until_led()
        others = [node for node in self._nodes.nodes.values() if node is not primary]
        await asyncio.sleep(_BEFORE)
        refused = submissions.refused.total()
        began = time.monotonic()
        probe = PromotionProbe([self._nodes.url_of(node) for node in others])
        try:
            await FAULTS[fault](self._nodes, primary)
            probe.watch(self._nodes.url_of(primary))  # a switchover may end where it began

            async def written_again() -> bool:
                return probe.writable_at is not None and submissions.first_after(probe.writable_at) is not None

            await until(written_again, f"submissions are stored after the fault {fault!r}", within=_RECOVERY)
        except Unavailable as error:
            raise Unavailable(f"{error}; {await self._state(probe, began)}") from None
        finally:
            await probe.stop()
        await asyncio.sleep(_AFTER)
        ended = time.monotonic()
        primary.freeze(False)
        primary.start()
        await self._nodes.until_healthy()
        seconds, _ = submissions.longest_gap(began - _BEFORE, ended)
        self.without_writes[fault].append(seconds)
        assert probe.writable_at is not None
        self.back.append(max(0.0, (submissions.first_after(probe.writable_at) or ended) - probe.writable_at))
        self.refused[fault] += submissions.refused.total() - refused

    async def _state(self, probe: PromotionProbe, began: float) -> str:
        """What PostgreSQL, Patroni and the servers say of a round that does not end."""
        promoted = None if probe.promoted_at is None else round(probe.promoted_at - began, 1)
        writable = None if probe.writable_at is None else round(probe.writable_at - began, 1)
        living = sum(server.lives() for server in self._arena.servers)
        return (
            f"seconds until another node was promoted: {promoted}, and took a write: {writable}; servers that live: "
            f"{living} of {len(self._arena.servers)}; answers by status: {dict(self._submissions.refused)}; "
            f"the nodes: {await self._nodes.members()}"
        )


async def run(rounds: int, per_second: float = PER_SECOND, only: Sequence[str] = tuple(FAULTS)) -> dict[str, object]:
    """The faults in turn, `rounds` in all."""
    with progress() as bar:
        starting = bar.add_task("Patroni, etcd and PostgreSQL started", total=1)
        async with patroni_nodes() as nodes, arena_at(nodes.url, nodes.folder / "bench") as arena:
            bar.advance(starting)
            servers = [await arena.start_server() for _ in range(2)]
            await arena.start_worker(servers[0].url)
            crons = CronStream(servers[0].url, arena.headers, jobs=_CRONS)
            await crons.start()
            submissions = Submissions([server.url for server in servers], arena.token, per_second)
            submissions.start()
            drill = Drill(nodes, arena, submissions)
            task = bar.add_task("failovers", total=rounds)
            try:
                for number in range(rounds):
                    await drill.round(only[number % len(only)])
                    bar.advance(task)
            except Unavailable as error:  # what was measured before is shown
                drill.given_up = str(error)
            finally:
                await submissions.stop()
                submissions.close()
            return await _figures(drill, submissions, crons, arena)


async def _figures(drill: Drill, submissions: Submissions, crons: CronStream, arena: Arena) -> dict[str, object]:
    connection = await arena.connect()
    try:
        await crons.pause()
        await until(lambda: _nothing_runs(connection), "all runs have ended", within=_RECOVERY, every=0.2)
        doubled, unrecorded = await crons.faults(connection)
        ids = [UUID(job_id) for job_id, _ in submissions.acknowledged]
        stored = await connection.fetch("select run_id from mainspring.run_history where run_id = any ($1)", ids)
    finally:
        await connection.close()
    seconds = [second for each in drill.without_writes.values() for second in each]
    if not seconds:
        raise Unavailable(drill.given_up or "no round has ended")
    figures: dict[str, object] = {
        "rounds": len(seconds),
        **({} if drill.given_up is None else {"given_up": drill.given_up}),
        "without_writes_p50_s": round(percentile(seconds, 0.50), 3),
        "without_writes_max_s": round(max(seconds), 3),
        "back_after_promotion_p50_s": round(percentile(drill.back, 0.50), 3),
        "back_after_promotion_max_s": round(max(drill.back), 3),
        "acknowledged": len(ids),
        "acknowledged_lost": len(set(ids)) - len({row["run_id"] for row in stored}),
        "run_twice": len(stored) - len({row["run_id"] for row in stored}),
        "fires": crons.fired,
        "double_fires": doubled,
        "missed_not_recorded": unrecorded,
        "slowest_submission_s": round(submissions.slowest, 3),
        "without_answer": submissions.refused[0],
        **{f"refused_{status}": number for status, number in sorted(submissions.refused.items()) if status},
    }
    for fault, each in drill.without_writes.items():
        if each:
            figures |= {
                f"{fault}_p50_s": round(percentile(each, 0.50), 3),
                f"{fault}_max_s": round(max(each), 3),
                f"{fault}_refused": drill.refused[fault],
            }
    return figures


async def _nothing_runs(connection: asyncpg.Connection) -> bool:
    return not await connection.fetchval("select exists (select from mainspring.runs)")


def main(rounds: int, per_second: float, as_json: bool) -> int:
    """The exit code is 1 if something was lost or happened twice."""
    figures = uvloop.run(run(rounds, per_second))
    show("failover of PostgreSQL", figures, as_json)
    wrong = ("given_up", "acknowledged_lost", "run_twice", "double_fires", "missed_not_recorded")
    return int(any(figures.get(name) for name in wrong))
