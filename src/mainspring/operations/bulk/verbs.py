"""The verbs of operations. A slice is applied in the transaction that also advances the operation.

Every verb takes the same locks, checks and effects as the call for one object. An object that is refused does not hold
up the others: each object has a savepoint of its own. A verb that can apply to many objects at once first tries that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

import msgspec

from mainspring.domain.bulk import Target
from mainspring.domain.errors import Conflict, MainspringError, NotFound
from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.operations.control.amend import Amender
from mainspring.operations.control.replay import Repeated, Replayer
from mainspring.operations.control.run_now import ManualRuns
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.discard import discard
from mainspring.operations.live.topics import JOBS, QUEUES, RUNS
from mainspring.operations.signals import Signals
from mainspring.store import backfills, history
from mainspring.store.pool import NOT_NOW, Connection
from mainspring.wire.bulk import Failure
from mainspring.wire.jobs import RunNowRequest

log = get_logger("bulk")

_UNEXPECTED = "it could not be done; the log of the server has the error"

AfterCommit = Callable[[], None]
One = Callable[[Caller, Connection, str], Awaitable[AfterCommit | None]]
Many = Callable[[Caller, Connection, Sequence[str]], Awaitable["VerbOutcome"]]


class VerbOutcome(msgspec.Struct):
    """The outcome of a slice. `after_commit` has functions to call after the commit, which publish what has changed."""

    failures: list[Failure] = []
    after_commit: list[AfterCommit] = []


class Verb(msgspec.Struct, frozen=True):
    """`at_once`: how many objects a slice has. More than 64 savepoints in a transaction make every snapshot of others
    slow, so verbs that cannot do many at once have small slices."""

    one: One
    many: Many | None = None
    at_once: int = 50


class Verbs:
    def __init__(self, signals: Signals, amender: Amender, manual_runs: ManualRuns, replayer: Replayer) -> None:
        self._signals = signals
        self._amender = amender
        self._manual_runs = manual_runs
        self._replayer = replayer
        self._known = {
            (Target.JOBS, "pause"): Verb(self._pause),
            (Target.JOBS, "resume"): Verb(self._resume),
            (Target.JOBS, "cancel"): Verb(self._cancel_job),
            (Target.JOBS, "run_now"): Verb(self._run_now),
            (Target.RUNS, "cancel"): Verb(partial(_alone, self._cancel_runs), self._cancel_runs, 500),
            (Target.RUNS, "retry"): Verb(self._retry),
            (Target.DEAD_LETTERS, "replay"): Verb(partial(_alone, self._replay), self._replay, 500),
            (Target.DEAD_LETTERS, "discard"): Verb(partial(_alone, self._discard), self._discard, 1000),
        }

    def named(self, target: Target, verb: str) -> Verb:
        return self._known[target, verb]

    def publish_changed(self, tenant: TenantId, count: int) -> None:
        """After the commit of a slice: publish to event streams that objects have changed."""
        self._signals.lists_changed.publish(tenant, (JOBS, RUNS, QUEUES), count)

    async def _pause(self, caller: Caller, connection: Connection, job_id: str) -> None:
        await self._amender.pause_in(caller, connection, job_id)

    async def _resume(self, caller: Caller, connection: Connection, job_id: str) -> AfterCommit | None:
        changed = await self._amender.resume_in(caller, connection, job_id)
        return self._amender.publish_resumed if changed else None

    async def _cancel_job(self, caller: Caller, connection: Connection, job_id: str) -> AfterCommit:
        effects = await self._amender.cancel_job_in(caller, connection, job_id)
        return partial(effects.publish, self._signals)

    async def _run_now(self, caller: Caller, connection: Connection, job_id: str) -> AfterCommit | None:
        _, made = await self._manual_runs.run_now_in(caller, connection, job_id, RunNowRequest())
        return None if made is None else partial(self._manual_runs.publish, made)

    async def _cancel_runs(self, caller: Caller, connection: Connection, ids: Sequence[str]) -> VerbOutcome:
        wanted = [UUID(text) for text in ids]
        live = await backfills.lock_runs(connection, caller.tenant, wanted)
        effects = await cancel(connection, live)
        failures = []
        for run_id in sorted(set(wanted) - {run.run_id for run in live}):
            ended = await history.ended_run(connection, caller.tenant, run_id)
            if ended is None:
                failures.append(Failure(str(run_id), f"there is no run {run_id}"))
            elif ended.state != StoredState.CANCELLED:
                failures.append(Failure(str(run_id), f"run {run_id} has ended with {StoredState(ended.state).name}"))
        return VerbOutcome(failures, [partial(effects.publish, self._signals)])

    async def _retry(self, caller: Caller, connection: Connection, run_id: str) -> AfterCommit:
        done = await self._replayer.retry_in(caller, connection, UUID(run_id))
        return partial(self._replayer.publish, done)

    async def _replay(self, caller: Caller, connection: Connection, ids: Sequence[str]) -> VerbOutcome:
        done: Repeated = await self._replayer.replay_in(caller, connection, [UUID(text) for text in ids])
        failures = [Failure(str(run_id), reason) for run_id, reason in done.refused]
        return VerbOutcome(failures, [partial(self._replayer.publish, done)])

    async def _discard(self, caller: Caller, connection: Connection, ids: Sequence[str]) -> VerbOutcome:
        if await discard(connection, caller.tenant, [UUID(text) for text in ids]) == len(ids):
            return VerbOutcome()
        if len(ids) == 1:
            raise NotFound(f"there is no dead letter {ids[0]}")
        raise Conflict("some dead letters do not exist any more")  # the caller then applies the verb one by one


async def apply_verb(verb: Verb, caller: Caller, connection: Connection, ids: Sequence[str]) -> VerbOutcome:
    """Apply the verb to all objects together if that is possible, or else one by one, in key order."""
    if verb.many is not None and len(ids) > 1:
        try:
            async with connection.transaction():
                return await verb.many(caller, connection, ids)
        except NOT_NOW:
            raise
        except Exception as error:  # noqa: BLE001 - it is found out below whose error it is
            log.detail("a slice is applied one by one", error=repr(error))
    outcome = VerbOutcome()
    for one in sorted(ids):
        try:
            async with connection.transaction():
                after_commit = await verb.one(caller, connection, one)
        except MainspringError as error:
            outcome.failures.append(Failure(one, error.detail))
        except NOT_NOW:
            raise
        except Exception as error:
            log.error("a verb failed for one object", object=one, exc_info=error)
            outcome.failures.append(Failure(one, _UNEXPECTED))
        else:
            if after_commit is not None:
                outcome.after_commit.append(after_commit)
    return outcome


async def _alone(many: Many, caller: Caller, connection: Connection, one: str) -> AfterCommit | None:
    """Apply a verb for many objects to one object."""
    outcome = await many(caller, connection, [one])
    if outcome.failures:
        raise Conflict(outcome.failures[0].reason)
    return partial(_call_all, outcome.after_commit)


def _call_all(after_commit: Sequence[AfterCommit]) -> None:
    for each in after_commit:
        each()
