"""Exchanges that arrive together share one statement: sequence numbers, plain successes and claims of many workers.

There is no timer. An exchange that comes alone is written at once, in one round trip. Those that come while the
statement of others is under way are the next group. Each member has its own guards and its own result. The statement
waits for no row. A member that does not pass, or of whose outcomes one does not, goes on by itself
(ExchangeTransaction), which waits, and says what is wrong.

What cannot be decided in the statement is not grouped at all: outcomes other than successes, recovery, goodbyes, shares
of queues, lanes behind limits, lanes of several queues or tenants, which take turns, and claims of old workers, whose
runs count as started.

After an error that leaves open whether the statement was carried out, its members fail. Their workers do not get an
answer, and recover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import msgspec

from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock
from mainspring.kernel.logs import get_logger
from mainspring.operations.claim.claimer import MAX_LANES_PER_CLAIM, Claimer
from mainspring.operations.exchange.exchange import Exchange
from mainspring.operations.exchange.patience import Busy
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.store.database import Pooling
from mainspring.store.exchange_groups import GroupMember, LaneHead, MemberResult, Success, exchange_together
from mainspring.store.lanes import Lane
from mainspring.store.pool import AWAY, Store
from mainspring.wire.exchange import Outcome
from mainspring.wire.usage import usage_text

log = get_logger("exchange")

MOST_OUTCOMES = 64  # an exchange with more is large enough to be written by itself
MOST_RUNS = 256
_MOST_MEMBERS = 200
_MOST_BYTES = 64 * 1024  # of the results of one exchange
_LOOK = 0.25  # seconds after which those that wait for a statement are looked at, again and again
_LONGEST_WAIT = 0.5  # seconds
_GO_ON = 4  # of them at each look


class _Joined(msgspec.Struct, eq=False):
    """An exchange that waits for its group. Of its lanes none is paused."""

    exchange: Exchange
    most: int
    lanes: Sequence[Lane]
    successes: Sequence[Success]
    done: asyncio.Future[MemberResult | None]
    since: float


class ExchangeGroups:
    def __init__(self, store: Store, claimer: Claimer, gates: GateRegistry, clock: Clock) -> None:
        self._clock = clock
        self._store = store
        self._claimer = claimer
        self._gates = gates
        # A PgBouncer in transaction mode keeps no plans, and to plan this statement takes long.
        self._enabled = store.database.pooling is not Pooling.TRANSACTION
        self._pending: list[_Joined] = []
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        store.urgent_waits.append(self.waited)

    def waited(self) -> float:
        """For how many seconds the exchange that is next has waited; 0 if none waits."""
        return self._clock.monotonic() - self._pending[0].since if self._pending else 0.0

    async def join(self, exchange: Exchange) -> MemberResult | None:
        """Write this exchange together with others: its number, its outcomes and a claim for its free slots. None:
        nothing was written. Raises Busy if it waits for too long, and nothing was written."""
        if not self._enabled or not _is_plain(exchange) or self._gates.limited(exchange.worker.lanes):
            return None
        most, lanes = exchange.request.free, self._gates.unpaused(exchange.worker.lanes)
        if not most or not lanes:
            most, lanes = 0, ()
        elif not self._may_claim(exchange, lanes):
            return None
        try:
            successes = () if exchange.committed else [_success(one) for one in exchange.request.outcomes]
        except UnicodeDecodeError:
            return None
        if most:
            most = exchange.take_part(most)
        done = asyncio.get_running_loop().create_future()
        joined = _Joined(exchange, most, lanes, successes, done, self._clock.monotonic())
        self._pending.append(joined)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        return await joined.done

    def _may_claim(self, exchange: Exchange, lanes: Sequence[Lane]) -> bool:
        most = min(MOST_RUNS, self._claimer.most_at_once(lanes))
        return exchange.worker.tells_starts and exchange.request.free <= most and _take_no_turns(lanes)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    async def _write(self) -> None:
        while self._pending:
            group = self._next_group()
            if not group:
                continue
            self._look_later()
            try:
                found = await self._exchange(group)
            except (ValueError, OverflowError, asyncpg.PostgresError, *AWAY) as error:
                # The driver raises a ValueError, which may also be in AWAY, for a value that it cannot send.
                if isinstance(error, AWAY) and not isinstance(error, ValueError):
                    _fail(group, error)  # whether it was carried out is not known
                else:  # nothing was written
                    log.info("a group of exchanges is divided", members=len(group), error=repr(error))
                    _settle(group, [None] * len(group))
            except Exception as error:  # noqa: BLE001 - handed on to every member
                _fail(group, error)
            else:
                metrics.exchange_groups.inc()
                metrics.grouped_exchanges.inc(len(group))
                _settle(group, found)
            finally:
                if self._timer is not None:
                    self._timer.cancel()

    def _next_group(self) -> list[_Joined]:
        """The first of those that wait: one of each worker, and about as many runs as a reply has room for."""
        group: list[_Joined] = []
        later: list[_Joined] = []
        workers: set[int] = set()
        room = 1.0
        for joined in self._pending:
            if joined.done.done():  # its client has gone
                continue
            if joined.exchange.waiter.superseded:  # it goes on by itself, and is told so
                joined.done.set_result(None)
                continue
            worker = joined.exchange.request.worker_id.int
            size = joined.most / self._claimer.most_at_once(joined.lanes) if joined.most else 0.0
            if worker in workers or (group and size > room) or len(group) == _MOST_MEMBERS:
                later.append(joined)
            else:
                group.append(joined)
                room -= size
            workers.add(worker)
        self._pending = later
        return group

    async def _exchange(self, group: Sequence[_Joined]) -> list[MemberResult | None]:
        places: dict[tuple[int, ...], int] = {}
        lane_sets: list[Sequence[LaneHead]] = []
        members = []
        for joined in group:
            request = joined.exchange.request
            place = places.setdefault(tuple(lane.lane_id for lane in joined.lanes), len(lane_sets))
            if place == len(lane_sets):
                lane_sets.append(self._claimer.heads(joined.lanes))
            numbered, tenant = joined.exchange.numbered, joined.exchange.tenant
            members.append(
                GroupMember(request.worker_id, tenant, request.seq, numbered, joined.most, place, joined.successes)
            )
        async with self._store.groups.acquire() as connection:
            return await exchange_together(connection, members, lane_sets, self._gates.revision)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        """The statement of others takes long. A few of those that wait for it go on by themselves, in case only its
        connection hangs. If all did, they would make it worse where the database has too much to do; so the others are
        told to come back."""
        now, first = self._clock.monotonic(), self._pending[:_GO_ON]
        for joined in self._pending:
            if joined.done.done():
                continue
            if joined in first:
                joined.done.set_result(None)
            elif now - joined.since >= _LONGEST_WAIT:
                joined.done.set_exception(Busy())
                joined.done.exception()
        self._pending = [joined for joined in self._pending if not joined.done.done()]
        self._look_later()


def _is_plain(exchange: Exchange) -> bool:
    request = exchange.request
    if request.recover or request.stopped or request.draining or request.shares or request.room:
        return False
    outcomes = request.outcomes
    if not outcomes or exchange.committed:
        return True
    if len(outcomes) > MOST_OUTCOMES or any(outcome.status != "SUCCESS" for outcome in outcomes):
        return False
    return sum(memoryview(outcome.result).nbytes for outcome in outcomes) <= _MOST_BYTES


def _take_no_turns(lanes: Sequence[Lane]) -> bool:
    """Whether these lanes are of one queue of one tenant. Queues and tenants take turns."""
    first = lanes[0]
    if len(lanes) > MAX_LANES_PER_CLAIM:
        return False
    return all(lane.tenant_id == first.tenant_id and lane.queue == first.queue for lane in lanes)


def _success(outcome: Outcome) -> Success:
    return Success(
        outcome.run_id, outcome.fence, outcome.held_ms, outcome.ran_ms, str(outcome.result, "utf-8") or None,
        usage_text(outcome.usage),
    )  # fmt: skip


def _settle(group: Sequence[_Joined], found: Sequence[MemberResult | None]) -> None:
    for joined, result in zip(group, found, strict=True):
        if not joined.done.done():
            joined.done.set_result(result)


def _fail(group: Sequence[_Joined], error: Exception) -> None:
    for joined in group:
        if not joined.done.done():
            joined.done.set_exception(error)
            joined.done.exception()  # asyncio logs nothing if the exchange has gone
