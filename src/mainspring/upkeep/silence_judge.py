"""Judges silent workers: whose ordinary runs may be taken, and who is lost.

A lease of a worker has two ends. At `rescue_after` seconds of silence its ordinary runs are taken. It is lost at
`exclusive_rescue_after`, or at once if it holds no exclusive run.

Silence proves nothing while those who should have heard the worker were not well. So judgement is held

- until the database has been writable for the longest lease that was granted: no server could record a heartbeat
  before;
- for the time by which this process itself was late within the last lease, with its event loop or with heartbeats;
- for one more lease, if five or more workers of one server, and a fifth of its workers, fell silent within one beat.

Everything is computed anew in each sweep. Only the last heartbeats of silent workers are kept between sweeps, because
it takes long to find them; the statement that acts on a verdict checks the heartbeats again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock
from mainspring.kernel.config import SHORTEST_LEASE, Timing
from mainspring.kernel.late_times import LatePeriods, late_within
from mainspring.kernel.logs import get_logger
from mainspring.store import workers
from mainspring.store.pool import Connection
from mainspring.store.workers import Holdings, LastHeard, SilentWorker, StillSilent
from mainspring.upkeep.silent_together import silent_groups

log = get_logger("run_rescuer")

_DATABASE, _LATE, _TOGETHER = "database", "late", "together"
_REASONS = {
    _DATABASE: "the database has not been writable for a full lease",
    _LATE: "this server was late",
    _TOGETHER: "they fell silent together at one server",
}


@dataclass(slots=True)
class Verdicts:
    """lost: workers that are lost. ordinary: workers whose ordinary runs may be taken. held: how many workers would be
    among these, and are not yet, by reason."""

    lost: list[StillSilent] = field(default_factory=list)
    ordinary: list[StillSilent] = field(default_factory=list)
    held: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """now: the time of the database. may_judge: whether ordinary and exclusive leases may be judged, by how long the
    database has been writable. together: workers that fell silent together."""

    now: float
    may_judge: Mapping[bool, bool]
    together: frozenset[UUID]


class SilenceJudge:
    """`late` says in which periods this process was late."""

    def __init__(self, clock: Clock, timing: Timing, late: Sequence[LatePeriods] = ()) -> None:
        self._clock = clock
        self._beat = timing.beat
        self._least_silence = min(SHORTEST_LEASE, timing.base_rescue, timing.rescue) - timing.beat
        self._late = late
        self._heard: dict[UUID, LastHeard] = {}
        self._held: frozenset[str] = frozenset()
        self.status = "ok"

    async def judge(self, connection: Connection, writable_for: float) -> Verdicts:
        """Judge all silent workers. `writable_for`: for how many seconds the database has been writable."""
        silent = await workers.silent(connection, self._least_silence)
        await self._look_up(connection, silent)
        verdicts = Verdicts()
        if silent:
            ordinary, exclusive, now = await workers.longest_leases(connection)
            suspects = [worker for worker in silent if self._silence(worker, now) >= worker.rescue_after]
            if suspects:
                may_judge = {False: writable_for >= ordinary, True: writable_for >= exclusive}
                circumstances = _Circumstances(now, may_judge, await self._together(connection))
                held_runs = await workers.holdings(connection, [worker.worker_id for worker in suspects])
                holdings = {each.worker_id: each for each in held_runs}
                for worker in suspects:
                    self._judge(worker, holdings.get(worker.worker_id), circumstances, verdicts)
        self._publish(verdicts.held)
        return verdicts

    def _judge(self, worker: SilentWorker, held: Holdings | None, now: _Circumstances, verdicts: Verdicts) -> None:
        silence = self._silence(worker, now.now)
        if held is not None:
            silence = min(silence, now.now - held.claimed_at)  # a claim is a sign of life before its heartbeat is
        exclusive = held is not None and held.exclusive
        patience = self._patience(worker, silence, now, exclusive=exclusive, held=verdicts.held)
        if patience is not None:
            verdicts.lost.append(StillSilent(worker.worker_id, worker.last_seq, patience))
        elif held is not None and held.exclusive and held.ordinary:
            patience = self._patience(worker, silence, now, exclusive=False, held=verdicts.held)
            if patience is not None:
                verdicts.ordinary.append(StillSilent(worker.worker_id, worker.last_seq, patience))

    def _patience(
        self, worker: SilentWorker, silence: float, now: _Circumstances, *, exclusive: bool, held: Counter[str]
    ) -> float | None:
        """The seconds of silence after which the worker may be judged. None if it must not be judged yet."""
        lease = worker.exclusive_rescue_after if exclusive else worker.rescue_after
        together = worker.worker_id in now.together
        late = late_within(self._late, self._clock.monotonic(), lease)
        patience = max(2 * lease if together else lease, lease + late)
        if silence < lease:
            return None
        if not now.may_judge[exclusive]:
            held[_DATABASE] += 1
        elif silence < patience:
            held[_TOGETHER if together and silence < 2 * lease else _LATE] += 1
        else:
            return patience
        return None

    def _silence(self, worker: SilentWorker, now: float) -> float:
        heard = self._heard.get(worker.worker_id)
        return 0.0 if heard is None else now - heard.at

    async def _look_up(self, connection: Connection, silent: Sequence[SilentWorker]) -> None:
        """Find out when the silent workers were last heard, and forget the others."""
        known, self._heard = self._heard, {}
        unknown = []
        for worker in silent:
            if (heard := known.get(worker.worker_id)) is not None:
                self._heard[worker.worker_id] = heard
            else:
                unknown.append(worker.worker_id)
        if unknown:
            self._heard.update({heard.worker_id: heard for heard in await workers.last_heard(connection, unknown)})

    async def _together(self, connection: Connection) -> frozenset[UUID]:
        found: set[UUID] = set()
        for group in silent_groups(self._heard.values(), self._beat):
            # Each worker of the server beat at least once in the two beats before.
            since = group.since - 2 * self._beat
            if group.is_share_of(await workers.heard_by_server(connection, group.server_id, since, group.until)):
                found |= group.worker_ids
        return frozenset(found)

    def _publish(self, held: Counter[str]) -> None:
        """Publish the held judgements in the log when they change, in the metrics and in /readyz."""
        for reason in _REASONS:
            metrics.judgement_held.labels(reason).set(held[reason])
        told = [f"{held[reason]} silent workers: {text}" for reason, text in _REASONS.items() if held[reason]]
        self.status = f"held for {'; '.join(told)}" if told else "ok"
        reasons = frozenset(held)
        if reasons - self._held:
            log.warning("judgement of silent workers is held", reasons=sorted(reasons), workers=held.total())
        elif self._held and not reasons:
            log.info("judgement of silent workers is no longer held")
        self._held = reasons
