"""Takes death notices. A notice proves that nothing of a worker is left, so its runs are rescued at once.

The incarnation ends and its first runs are taken in one transaction. If the server dies after that, the rescuer finds
the rest (`ended_with_runs`).
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from mainspring.domain.errors import InvalidInput, Unauthorized, Unavailable
from mainspring.domain.losses import Death
from mainspring.kernel import metrics
from mainspring.kernel.ids import parse_uuid
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.lifecycle.dispatch import WORKERS_LOST
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import LostWorker
from mainspring.operations.lifecycle.rescue_worker import WorkerRescue
from mainspring.operations.signals import Signals
from mainspring.store import workers
from mainspring.store.pool import Connection, Store
from mainspring.wire.death_notice import CLEAN_EXIT, DeathNotice, DeathReceipt
from mainspring.wire.protocol import LONGEST_SECRET, SECRET_HEADER, WORKER_HEADER

log = get_logger("death_notices")


class Proof(msgspec.Struct, frozen=True):
    """The secret of this worker's incarnation, which the sender of a notice knows."""

    worker_id: UUID
    secret: str


class DeathNotices:
    def __init__(self, store: Store, signals: Signals, random: Random, forget: Callable[[UUID], None]) -> None:
        """`forget` drops what the server has cached of a worker."""
        self._store = store
        self._signals = signals
        self._random = random
        self._forget = forget

    async def prove(self, worker: str | None, secret: str | None) -> Proof:
        """The proof that the headers of a notice give, before its body is read. Raises Unauthorized. It takes no
        lock."""
        worker_id = None if worker is None else parse_uuid(worker)
        if worker_id is None or not secret or len(secret) > LONGEST_SECRET:
            raise Unauthorized(
                "the secret of the worker is required", code="wrong_secret", field=SECRET_HEADER,
                hint=f"send {WORKER_HEADER} and {SECRET_HEADER}",
            )  # fmt: skip
        async with self._store.for_short_reads().acquire() as connection:
            if not await workers.knows_secret(connection, worker_id, secret):
                raise _wrong_secret()
        return Proof(worker_id, secret)

    async def take(self, notice: DeathNotice, proof: Proof) -> DeathReceipt:
        """End the incarnation and rescue its runs. It can be repeated."""
        worker_id = proof.worker_id
        if notice.worker_id != worker_id:
            raise InvalidInput(
                "the notice is about another worker than its proof", field="worker_id", expected=str(worker_id),
                hint=f"send the worker_id that {WORKER_HEADER} has",
            )  # fmt: skip
        started = None if notice.started is None else frozenset(notice.started)
        async with self._store.hot.acquire() as connection, connection.transaction():
            taken = await workers.take_notice(connection, worker_id, proof.secret)
            if taken is None:
                raise _wrong_secret()
            name, lost = taken
            death = await _death(connection, notice, first=lost)
            rescue = WorkerRescue(self._signals, self._random, worker_id, started, death=death)
            effects = await rescue.take_batch(connection)
            if lost and (effects is not None or notice.exit != CLEAN_EXIT):
                effects = effects or Effects()
                await WORKERS_LOST.happened(connection, [LostWorker(worker_id)], effects)
        self._forget(worker_id)
        metrics.death_notices.inc()
        if notice.exit == CLEAN_EXIT and effects is None:
            log.detail("worker has ended", worker=str(worker_id), name=name)
        else:
            log.info("worker is gone", worker=str(worker_id), name=name, exit=notice.exit)
        if effects is not None:
            rescue.publish(effects)
        rescued = await rescue.take_all(self._store)
        async with self._store.hot.acquire() as connection:
            if await workers.holds_runs(connection, worker_id):
                # The rescuer takes them too, but it does not know what had started.
                raise Unavailable("other transactions hold some of the runs", code="busy", hint="send the notice again")
        return DeathReceipt(rescued)


async def _death(connection: Connection, notice: DeathNotice, *, first: bool) -> Death | None:
    """What the notice says about the runs of the worker. A repeated one cannot say how many it held: some of them were
    rescued before."""
    if notice.cause is None:
        return None
    alone = first and await workers.held_number(connection, notice.worker_id) == 1
    return Death(notice.cause == "crashed", notice.exit, alone)


def _wrong_secret() -> Unauthorized:
    return Unauthorized("this is not the secret of the worker", code="wrong_secret", field=SECRET_HEADER)
