"""Report: record the outcomes of attempts."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.transitions import Follows
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.lifecycle.decide import Random, decide
from mainspring.operations.lifecycle.dispatch import release, runs_ended
from mainspring.operations.lifecycle.effects import NO_RESULTS, Effects, RunChanges, after_end, apply_changes
from mainspring.store import runs
from mainspring.store.pool import Connection
from mainspring.wire.exchange import Outcome
from mainspring.wire.usage import usage_text

_RESULT = int(Follows.RESULT)


async def settle(connection: Connection, worker_id: UUID, outcomes: Sequence[Outcome], random: Random) -> Effects:
    """Record outcomes in the caller's transaction. Each must match run, fence and incarnation; otherwise it is fenced.
    If one cannot be stored, this raises and none is stored. The worker then finds out which one it is."""
    successes = [outcome for outcome in outcomes if outcome.status == "SUCCESS"]
    others = [outcome for outcome in outcomes if outcome.status != "SUCCESS"]
    effects = Effects()
    unmatched: list[Outcome] = []
    if successes:
        try:
            unmatched += await _settle_successes(connection, worker_id, successes, effects)
        except UnicodeDecodeError:
            raise _not_text(outcomes) from None
    if others:
        unmatched += await _settle_others(connection, worker_id, others, random, effects)
    await runs_ended(connection, effects)
    await release(connection, effects)
    if unmatched:
        before = await runs.reported_before(
            connection,
            worker_id,
            [item.run_id for item in unmatched],
            [item.fence for item in unmatched],
            [item.status for item in unmatched],
        )
        effects.fenced = [item.run_id for item in unmatched if item.run_id not in before]
    return effects


async def _settle_successes(
    connection: Connection, worker_id: UUID, successes: list[Outcome], effects: Effects
) -> list[Outcome]:
    successes.sort(key=lambda item: item.run_id.int)  # rows are always locked in key order
    texts = [str(item.result, "utf-8") or None for item in successes]
    usages = [item.usage for item in successes]
    rows = await runs.report_successes(
        connection,
        worker_id,
        [item.run_id for item in successes],
        [item.fence for item in successes],
        [item.held_ms for item in successes],
        [item.ran_ms for item in successes],
        texts if any(texts) else (),
        [usage_text(usage) for usage in usages] if any(usages) else (),
    )
    results = NO_RESULTS
    follows = [row[1] for row in rows]
    if any(follows) and any(bits & _RESULT for bits in follows if bits):
        results = {item.run_id: text for item, text in zip(successes, texts, strict=True)}
    after_end(rows, effects, succeeded=True, results=results)
    if len(rows) == len(successes):
        return []
    recorded = {row[0] for row in rows}
    return [item for item in successes if item.run_id not in recorded]


def _not_text(outcomes: Sequence[Outcome]) -> InvalidInput:
    """The error for a result that is not UTF-8. The decoder only looks for the end of a result."""
    place = next(index for index, outcome in enumerate(outcomes) if not _is_text(outcome.result))
    return InvalidInput("the result is not text", field=f"outcomes[{place}].result", expected="JSON in UTF-8")


def _is_text(result: msgspec.Raw) -> bool:
    try:
        str(result, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


async def _settle_others(
    connection: Connection, worker_id: UUID, others: list[Outcome], random: Random, effects: Effects
) -> list[Outcome]:
    locked = await runs.lock_reported(
        connection, worker_id, [item.run_id for item in others], [item.fence for item in others]
    )
    held = {(run.run_id, run.fence): run for run in locked}
    once = {(item.run_id, item.fence): item for item in reversed(others)}  # of two with the same key, the first
    changes, slices = RunChanges(), TimeSlices()
    for key, run in held.items():
        decide(run, once[key], random, changes)
        if slices.over:
            await slices.pause()
    await apply_changes(connection, changes, effects)
    return [item for item in others if (item.run_id, item.fence) not in held]
