"""Takes death notices. A notice proves that nothing of a worker is left, so its runs are rescued at once.

The incarnation ends and its first runs are taken in one transaction. If the server dies after that, the rescuer finds
the rest (`ended_with_runs`).
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from mainspring.domain.errors import Forbidden, Unavailable
from mainspring.kernel import metrics
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.lifecycle.dispatch import WORKERS_LOST
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import WorkerLost
from mainspring.operations.lifecycle.rescue_worker import WorkerRescue
from mainspring.operations.signals import Signals
from mainspring.store import workers
from mainspring.store.pool import Store
from mainspring.wire.death_notice import CLEAN_EXIT, DeathNotice, DeathReceipt

log = get_logger("death_notices")


class DeathNotices:
    def __init__(self, store: Store, signals: Signals, random: Random, forget: Callable[[UUID], None]) -> None:
        """`forget` drops what the server has cached of a worker."""
        self._store = store
        self._signals = signals
        self._random = random
        self._forget = forget

    async def take(self, notice: DeathNotice) -> DeathReceipt:
        """End the incarnation and rescue its runs. Raises Forbidden if the secret is wrong. It can be repeated."""
        worker_id = notice.worker_id
        # Somebody without the secret must not take the lock.
        async with self._store.for_short_reads().acquire() as connection:
            if not await workers.knows_secret(connection, worker_id, notice.secret):
                raise _wrong_secret()
        started = None if notice.started is None else frozenset(notice.started)
        rescue = WorkerRescue(self._signals, self._random, worker_id, started)
        async with self._store.hot.acquire() as connection, connection.transaction():
            taken = await workers.take_notice(connection, worker_id, notice.secret)
            if taken is None:
                raise _wrong_secret()
            name, lost = taken
            effects = await rescue.take_batch(connection)
            if lost and (effects is not None or notice.exit != CLEAN_EXIT):
                effects = effects or Effects()
                await WORKERS_LOST.happened(connection, [WorkerLost(worker_id)], effects)
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


def _wrong_secret() -> Forbidden:
    return Forbidden("this is not the secret of the worker", code="wrong_secret", field="secret")
