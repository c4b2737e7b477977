"""What follows the end of runs that others wait for: joins count it, and runs whose rules are decided start or end.

`StepsAndFlows` is called in the transaction that ends the runs. The joins of up to 64 parents are locked, by id, and
counted: the run that waits is QUEUED in the commit that ends its last parent. A wide join takes marks, because its row
would make all reports wait for each other. Who cancels holds runs that wait, so it writes marks as well. The runs that
are skipped here feed other joins by marks, so that no transaction grows with the graph. `JoinCounter` counts marks
after the commit, and also those that a killed process has left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from mainspring.domain.errors import InvalidInput
from mainspring.domain.tags import changed_meanwhile
from mainspring.domain.transitions import Follows, StoredState
from mainspring.domain.workflows.flow import FlowState, ends_a_container, is_final, is_of_map, prefix_of
from mainspring.domain.workflows.rules import (
    RULE_BITS,
    Counts,
    Decision,
    Rule,
    Skip,
    Waiting,
    cause_of,
    decide,
    decided,
    reason_of,
    skips_by,
)
from mainspring.operations.lifecycle.effects import Effects, RunChanges, after_end, apply_changes
from mainspring.operations.lifecycle.events import RunEnded
from mainspring.operations.limits.ready_runs import make_ready
from mainspring.operations.waits.beginning import begin, wait_in
from mainspring.operations.workflows.effects import FlowEffects
from mainspring.operations.workflows.step_inputs import fanout_results, resolve
from mainspring.store import fanouts, joins, workflows
from mainspring.store.joins import JoinCounts, Ready, Tally, WaitingRun
from mainspring.store.pool import Connection
from mainspring.store.runs import Ending
from mainspring.store.waits import NewWait

AT_ONCE = 1000  # runs that one statement deals with
_SUCCESS, _FAILED, _SKIPPED = StoredState.SUCCESS, StoredState.FAILED, StoredState.SKIPPED
# Plain numbers: an enum makes a new member for every `&`, and these are asked for every run that ends.
_STEP, _FLOW, _LAST, _RESULT = map(int, (Follows.STEP, Follows.FLOW, Follows.LAST, Follows.RESULT))
_STOPS = int(Follows.STOPS)
_OF_FLOWS = _STEP | _FLOW | _STOPS
_FAILS, _MAPPED, _RESOLVES, _WAITS = map(int, (Waiting.FAILS, Waiting.MAPPED, Waiting.RESOLVES, Waiting.WAITS))


class StepsAndFlows:
    """Runs have ended that belong to workflow runs, or that are such."""

    def wants(self, end: RunEnded, /) -> bool:
        return bool(end.follows & _OF_FLOWS or end.feeds)

    async def handle(self, connection: Connection, ends: Sequence[RunEnded], effects: Effects, /) -> None:
        await _follow(connection, ends, effects, by_marks=effects.waiting_locked)


STEPS_AND_FLOWS = StepsAndFlows()


async def _follow(connection: Connection, ends: Sequence[RunEnded], effects: Effects, *, by_marks: bool) -> None:
    """Deal with these ends. `by_marks`: no join may be locked."""
    if kept := [end for end in ends if end.follows & (_STEP | _FLOW) or (end.state != _SUCCESS and _is_member(end))]:
        await workflows.keep_ends(connection, [(end.run_id, end.state, end.reason, end.result) for end in kept])
    if flows := [(end.run_id, end.complete, end.reason) for end in ends if end.follows & _FLOW]:
        effects.of(FlowEffects).stopped.update(await workflows.close(connection, flows))
    counted, marked = await _tallies(connection, [end for end in ends if end.feeds], by_marks=by_marks)
    if counted:
        effects.contended = True
        await settle(connection, await joins.count(connection, counted), effects)
    if marked:
        await joins.mark(connection, marked)
        effects.of(FlowEffects).marked_joins.update(marked)
    if prefixes := {prefix_of(end.run_id) for end in ends if end.follows & _STOPS}:
        effects.contended = True
        await end_stopped(connection, prefixes, effects)


def _is_member(end: RunEnded) -> bool:
    """Whether it is a member of a mapped step. A rerun must know those that did not succeed."""
    return bool(end.feeds) and is_of_map(abs((end.feeds or [0])[0]))


async def end_stopped(connection: Connection, prefixes: Collection[UUID], effects: Effects) -> None:
    """End those of the workflow runs with these prefixes that are being stopped and of which no step run is left."""
    stopped = await workflows.lock_stopped(connection, sorted(prefixes))
    over = await workflows.without_runs(connection, [flow.prefix for flow in stopped]) if stopped else set()
    endings = [
        Ending(
            flow.run_id,
            flow.fence,
            int(_FAILED if flow.state == FlowState.TIMING_OUT else StoredState.CANCELLED),
            flow.stop_reason,
            None,
            int(StoredState.WAITING),
            attempt=flow.attempt,
        )
        for flow in stopped
        if flow.prefix in over
    ]
    if endings:
        first = len(effects.ended)
        await apply_changes(connection, RunChanges(endings), effects)
        for end in effects.ended[first:]:
            end.complete = True
        await _follow_from(connection, first, effects)


async def _follow_from(connection: Connection, first: int, effects: Effects) -> None:
    """Deal with ends that followed from others, from this place of `effects.ended` on: by marks, so that no transaction
    grows with the graph."""
    new = [end for end in effects.ended[first:] if STEPS_AND_FLOWS.wants(end)]
    for end in new:
        end.handled += (STEPS_AND_FLOWS,)
    if new:
        await _follow(connection, new, effects, by_marks=True)


async def _tallies(
    connection: Connection, ends: Sequence[RunEnded], *, by_marks: bool
) -> tuple[dict[int, Tally], dict[int, Tally]]:
    """What each join counts: at once, and by marks."""
    unnamed = [end.run_id for end in ends if end.state in (_FAILED, StoredState.CANCELLED)]
    names = await workflows.names_of_ended(connection, unnamed) if unnamed else {}
    counted: dict[int, Tally] = {}
    marked: dict[int, Tally] = {}
    for end in ends:
        for feed in end.feeds or ():
            join_id = abs(feed)
            tally = (marked if feed < 0 or by_marks else counted).setdefault(join_id, Tally())
            if end.state == _SUCCESS or _does_not_decide(end.follows, join_id):
                tally.ok += 1
            elif end.state == _SKIPPED:
                _count_skipped(tally, 1, end.cause)
            else:
                tally.failed += 1
                tally.cause = tally.cause or end.cause or names.get(end.run_id)
    return counted, marked


def _does_not_decide(follows: int, join_id: int) -> bool:
    """Whether the run only has to end for this join: that of the workflow run, which is decided by its last steps."""
    return follows & (_STEP | _LAST) == _STEP and is_final(join_id)


def _count_skipped(tally: Tally, number: int, cause: str | None) -> None:
    tally.skipped += number
    tally.blocked += number if cause is not None else 0
    tally.cause = tally.cause or cause


async def settle(connection: Connection, counted: Sequence[JoinCounts], effects: Effects) -> None:
    """Start and end the runs whose rules are decided by these counts. The joins are locked."""
    counts = {join.join_id: join.counts for join in counted}
    if maps := [join_id for join_id in counts if is_of_map(join_id)]:
        effects.of(FlowEffects).maps.update(maps)
    rules = {
        join_id: bits
        for join_id, found in counts.items()
        if (found.done or not ends_a_container(join_id)) and (bits := decided(found))
    }
    if not rules:
        return
    skips = [(join_id, skip) for join_id in rules for skip in skips_by(counts[join_id])]
    room = AT_ONCE - (await _skip(connection, skips, effects) if skips else 0)
    found = await joins.waiting(connection, rules, room) if room else []
    if found:
        await _Settlement(connection, effects, counts).settle(found)
    if len(found) == room:  # there may be more
        await joins.mark(connection, dict.fromkeys(rules, Tally()))
        effects.of(FlowEffects).marked_joins.update(rules)


async def _skip(connection: Connection, skips: Sequence[tuple[int, Skip]], effects: Effects) -> int:
    """End runs whose rules cannot be met, in one statement. Returns how many. Those of which more than joins must know
    stay."""
    marked: dict[int, Tally] = {}
    number = 0
    for runs in await joins.skip(connection, skips, AT_ONCE):
        if runs.feed is None:
            number += runs.number
            continue
        join_id = abs(runs.feed)
        tally = marked.setdefault(join_id, Tally())
        if _does_not_decide(runs.follows, join_id):
            tally.ok += runs.number
        else:
            _count_skipped(tally, runs.number, runs.cause)
    if marked:
        await joins.mark(connection, marked)
        effects.of(FlowEffects).marked_joins.update(marked)
    return number


class _Settlement:
    """What becomes of runs that wait, in one transaction."""

    def __init__(self, connection: Connection, effects: Effects, counts: dict[int, Counts]) -> None:
        self._connection = connection
        self._effects = effects
        self._counts = counts
        self._ready: list[WaitingRun] = []
        self._endings: list[Ending] = []
        self._waits: list[WaitingRun] = []
        self._maps: list[UUID] = []
        self._members_done: list[WaitingRun] = []
        self._succeeded: dict[UUID, str | None] = {}
        self._failed: dict[UUID, str] = {}
        self._complete: set[UUID] = set()

    async def settle(self, found: Sequence[WaitingRun]) -> None:
        for run in found:
            self._sort(run)
        if self._members_done:
            await self._end_maps()
        if self._ready:
            await self._start()
        if self._waits:
            await self._wait()
        if self._maps:
            _check(len(await fanouts.open_all(self._connection, self._maps)), len(self._maps))
            self._effects.of(FlowEffects).fanouts.update(self._maps)
        first = len(self._effects.ended)
        if self._succeeded:
            rows = await joins.succeed(self._connection, self._succeeded)
            _check(len(rows), len(self._succeeded))
            after_end(rows, self._effects, succeeded=True, results=self._succeeded)
        if self._endings:
            await apply_changes(self._connection, RunChanges(self._endings), self._effects)
        for end in self._effects.ended[first:]:
            end.complete = end.run_id in self._complete
            end.result = self._failed.get(end.run_id, end.result)
        await _follow_from(self._connection, first, self._effects)

    def _sort(self, run: WaitingRun) -> None:
        rule, counts = Rule(run.rule & RULE_BITS), self._counts[run.join_id]
        if rule is Rule.CONTAINER and run.rule & _MAPPED:
            self._members_done.append(run)
            return
        decision = decide(rule, counts)
        if decision is Decision.RUN and run.rule & _MAPPED:
            self._maps.append(run.run_id)
        elif decision is Decision.RUN and run.rule & _WAITS:
            self._waits.append(run)
        elif decision is Decision.RUN:
            self._ready.append(run)
        elif decision is Decision.SUCCEED:
            self._complete.add(run.run_id)
            self._succeeded[run.run_id] = None
        elif decision is Decision.FAIL:
            self._complete.add(run.run_id)
            self._end(run, _FAILED, f"step {counts.cause} failed" if counts.cause else "a step failed")
        elif decision is not None:
            blocked = decision is Decision.BLOCK
            state = _FAILED if blocked and run.rule & _FAILS else _SKIPPED
            self._end(run, state, reason_of(rule, decision, counts), cause_of(decision, counts))

    def _end(self, run: WaitingRun, state: StoredState, reason: str | None, cause: str | None = None) -> None:
        before = int(StoredState.WAITING)
        self._endings.append(
            Ending(run.run_id, run.fence, int(state), reason, None, before, attempt=run.attempt, cause=cause)
        )

    async def _start(self) -> None:
        plain: list[Ready] = []
        held: list[Ready] = []
        unresolved = [run for run in self._ready if run.rule & _RESOLVES]
        resolved, failed = await resolve(self._connection, [run.run_id for run in unresolved])
        for run in self._ready:
            if run.run_id in failed:
                self._end(run, _FAILED, failed[run.run_id])
            else:
                (held if run.limited else plain).append(resolved.get(run.run_id) or Ready(run.run_id))
        await make_ready(self._connection, plain, held, self._effects)

    async def _wait(self) -> None:
        resolved, failed = await resolve(self._connection, [run.run_id for run in self._waits])
        new: list[NewWait] = []
        for run in self._waits:
            ready = resolved.get(run.run_id)
            try:
                if ready is None or ready.payload is None:
                    self._end(run, _FAILED, failed[run.run_id])
                else:
                    new.append(NewWait(run.run_id, run.fence, ready.payload, wait_in(ready.payload)))
            except InvalidInput as error:
                self._end(run, _FAILED, error.detail)
        await begin(self._connection, new, self._effects)

    async def _end_maps(self) -> None:
        """Mapped steps whose members have all ended. Their counts are passed on also if they have failed."""
        closed = await fanouts.close(self._connection, [run.run_id for run in self._members_done])
        for run in self._members_done:
            fanout, counts = closed[run.run_id], self._counts[run.join_id]
            wanted = bool((run.follows or 0) & _RESULT)
            result = await fanout_results(self._connection, fanout, counts, wants_results=wanted)
            if decide(Rule.CONTAINER, counts, fanout.failures or 0) is Decision.SUCCEED:
                self._succeeded[run.run_id] = result
            else:
                self._end(run, _FAILED, f"{counts.failed} of {counts.total} members failed")
                if wanted:
                    self._failed[run.run_id] = result


def _check(written: int, wanted: int) -> None:
    if written != wanted:
        raise changed_meanwhile("runs")
