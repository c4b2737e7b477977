"""Report: take back what became of attempts. The only place that decides what follows an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.job import Delivery, Spec, spec_from_text
from mainspring.domain.retry import Verdict, after_failure
from mainspring.domain.transitions import StoredState
from mainspring.kernel import metrics
from mainspring.kernel.logs import get_logger
from mainspring.store import runs
from mainspring.store.pool import Connection, Record
from mainspring.wire.exchange import Outcome

log = get_logger("report")

Random = Callable[[], float]


class Settled(msgspec.Struct):
    """What a batch of outcomes led to. `requeued` are (lane, seconds until ready)."""

    fenced: list[UUID] = []
    requeued: list[tuple[int, float]] = []


class _Following(msgspec.Struct):
    """The rows to write, gathered."""

    endings: list[runs.Ending] = []
    requeues: list[runs.Requeue] = []
    tries: list[runs.PastAttempt] = []


async def settle(connection: Connection, worker_id: UUID, outcomes: Sequence[Outcome], random: Random) -> Settled:
    """Record outcomes inside the caller's transaction. Each matches run, fence AND incarnation, or is fenced. When one
    cannot be stored it raises, and none of them is: the worker will find out which it is."""
    successes = [outcome for outcome in outcomes if outcome.status == "SUCCESS"]
    others = [outcome for outcome in outcomes if outcome.status != "SUCCESS"]
    settled = Settled()
    unmatched: list[Outcome] = []
    if successes:
        try:
            unmatched += await _settle_successes(connection, worker_id, successes)
        except UnicodeDecodeError:
            raise _not_text(outcomes) from None
    if others:
        unmatched += await _settle_others(connection, worker_id, others, random, settled)
    if unmatched:
        before = await runs.reported_before(
            connection,
            worker_id,
            [item.run_id for item in unmatched],
            [item.fence for item in unmatched],
            [item.status for item in unmatched],
        )
        settled.fenced = [item.run_id for item in unmatched if item.run_id not in before]
    return settled


async def rescue(connection: Connection, held: Sequence[Record], random: Random) -> Settled:
    """Take runs from a lost worker: the next attempt, or FAILED when at most once, or CANCELLED when asked for."""
    following = _Following()
    for row in held:
        _decide(
            row,
            Outcome(row["run_id"], row["fence"], "FAILED", error="worker lost"),
            row["worker_id"],
            random,
            following,
            lost=True,
        )
    settled = Settled()
    await _write(connection, following, settled)
    return settled


async def expire(connection: Connection, overdue: Sequence[Record]) -> None:
    """End runs that waited until their run_timeout had passed; the caller holds their locks."""
    following = _Following()
    for row in overdue:
        reason = _out_of_time(spec_from_text(row["spec"]))
        following.endings.append(
            runs.Ending(
                row["run_id"], row["fence"], int(StoredState.FAILED), reason, None, row["state"], attempt=row["attempt"]
            )
        )
    await _write(connection, following, Settled())


async def _settle_successes(connection: Connection, worker_id: UUID, successes: list[Outcome]) -> list[Outcome]:
    successes.sort(key=lambda item: item.run_id.int)  # rows are locked in key order, here as everywhere
    rows = await runs.report_successes(
        connection,
        worker_id,
        [item.run_id for item in successes],
        [item.fence for item in successes],
        [item.held_ms for item in successes],
        [item.ran_ms for item in successes],
        [str(item.result, "utf-8") or None for item in successes],
    )
    if len(rows) == len(successes):
        return []
    recorded = {row[0] for row in rows}
    return [item for item in successes if item.run_id not in recorded]


def _not_text(outcomes: Sequence[Outcome]) -> InvalidInput:
    """The decoder looks for the end of a result, and not at its letters."""
    place = next(index for index, outcome in enumerate(outcomes) if not _is_text(outcome.result))
    return InvalidInput("the result is not text", field=f"outcomes[{place}].result", expected="JSON in UTF-8")


def _is_text(result: msgspec.Raw) -> bool:
    try:
        str(result, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


async def _settle_others(
    connection: Connection, worker_id: UUID, others: list[Outcome], random: Random, settled: Settled
) -> list[Outcome]:
    locked: Mapping[tuple[UUID, int], Record] = {
        (row["run_id"], row["fence"]): row
        for row in await runs.lock_reported(
            connection, worker_id, [item.run_id for item in others], [item.fence for item in others]
        )
    }
    following = _Following()
    once = {(item.run_id, item.fence): item for item in reversed(others)}  # of two that are the same, the first
    for key, row in locked.items():
        _decide(row, once[key], worker_id, random, following)
    await _write(connection, following, settled)
    return [item for item in others if (item.run_id, item.fence) not in locked]


def _decide(
    row: Record, outcome: Outcome, worker_id: UUID, random: Random, following: _Following, *, lost: bool = False
) -> None:
    """What follows an attempt that did not succeed."""
    run_id, fence, attempt = row["run_id"], row["fence"], row["attempt"]
    error = None if outcome.error is None else clean_text(outcome.error)

    def end(state: StoredState, reason: str) -> None:
        before = int(StoredState.RUNNING)
        ran_ms = None if lost else outcome.ran_ms  # nobody knows when a lost attempt ended
        ending = runs.Ending(run_id, fence, int(state), reason, error, before, ran_ms, outcome.held_ms, attempt)
        following.endings.append(ending)

    def again(how: str, delay: float, given_back: int = 0) -> None:
        following.requeues.append(runs.Requeue(run_id, fence, delay, given_back, error))
        following.tries.append(
            runs.PastAttempt(run_id, attempt, fence, worker_id, row["claimed_at"], how, error, delay)
        )

    if row["cancel_requested_at"] is not None or outcome.status == "CANCELLED":
        end(StoredState.CANCELLED, "cancelled on request" if row["cancel_requested_at"] else "cancelled by its worker")
        return
    if outcome.status == "RETURNED":
        again("RETURNED", 0.0, given_back=1)
        return
    spec = spec_from_text(row["spec"])
    verdict = _verdict(spec, row, outcome, random, lost=lost)
    if verdict.delay is None:
        end(StoredState.FAILED, verdict.reason)
    else:
        again("LOST" if lost else "FAILED", verdict.delay)


def _verdict(spec: Spec, row: Record, outcome: Outcome, random: Random, *, lost: bool) -> Verdict:
    """Whether another attempt follows a failed or lost one, by delivery, retry policy and run_timeout."""
    at_most_once = spec.delivery is Delivery.AT_MOST_ONCE
    if lost and at_most_once:
        return Verdict(None, "worker lost, and the job is at most once")
    time_left: float | None = row["time_left"]
    if time_left is not None and time_left <= 0:
        return Verdict(None, _out_of_time(spec))
    verdict = after_failure(
        spec.retry,
        row["attempt"],
        row["max_attempts"],
        random,
        cause=outcome.cause,
        wanted=outcome.retry,
        retry_after=outcome.retry_after,
    )
    if verdict.delay is None:
        return verdict
    if at_most_once:  # whatever the row says: intake leaves such a job one attempt
        return Verdict(None, "failed, and the job is at most once")
    delay = 0.0 if lost else verdict.delay
    if time_left is not None and delay >= time_left:
        return Verdict(None, f"{_out_of_time(spec)}: the next try would begin later than that")
    return Verdict(delay)


def _out_of_time(spec: Spec) -> str:
    return f"timed out after {format_duration(spec.run_timeout or 0.0)} in all (run_timeout)"


async def _write(connection: Connection, following: _Following, settled: Settled) -> None:
    metrics.dead.inc(sum(item.state == StoredState.FAILED for item in following.endings))
    metrics.retries.inc(sum(item.outcome != "RETURNED" for item in following.tries))
    for item in following.endings:
        if item.state == StoredState.FAILED:
            log.warning("run failed for good", run=str(item.run_id), attempt=item.attempt, reason=item.reason)
    if following.endings:
        await runs.end(connection, following.endings)
    if following.tries:
        await runs.record_attempts(connection, following.tries)
    if following.requeues:
        delays = {item.run_id: item.delay for item in following.requeues}
        for row in await runs.requeue(connection, following.requeues):
            settled.requeued.append((row["lane_id"], delays[row["run_id"]]))


def clean_text(text: str) -> str:
    """Text that PostgreSQL can store: no NUL, no lone surrogates, not endless."""
    return text[:65536].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
