"""Finds the outcome or progress report that makes a server reject an exchange. No I/O and no clock.

A rejected exchange has changed nothing (see docs/workers.md), so its parts can be sent again. After each rejection one
exchange is sent that carries nothing. If that is rejected too, the contents are not the cause. Otherwise the rejected
contents are sent in parts: split at the entry that the server names, or else in halves, until one outcome or one
progress report is rejected alone. All others are recorded on the way.
"""

from __future__ import annotations

import re
from collections import deque

import msgspec

from mainspring.wire.exchange import Outcome, Progress
from mainspring.wire.execution import Cause
from mainspring.wire.problems import Problem
from mainspring.worker.execution.attempt import Key, error_text

REFUSED = "OutcomeRefused"  # retry rules can name it
_NAMED = re.compile(r"(outcomes|progress)\[(\d+)\]")
_LONGEST_WORDS = 500


class OutcomeBatch(msgspec.Struct):
    """What one exchange carries."""

    outcomes: list[Outcome] = []
    progress: list[Progress] = []

    def __len__(self) -> int:
        return len(self.outcomes) + len(self.progress)


class Rejection(msgspec.Struct):
    """What follows from a rejection.

    not_contents: the contents are not the cause; `returned` is all that waited to be tried. rejected: this entry was
    rejected alone. An outcome is sent once more in its plain form; let_go: this was its plain form.
    """

    not_contents: bool = False
    returned: OutcomeBatch = msgspec.field(default_factory=OutcomeBatch)
    rejected: Outcome | Progress | None = None
    let_go: bool = False


class RejectedOutcomes:
    def __init__(self) -> None:
        self._waiting: deque[OutcomeBatch] = deque()
        self._plain: set[Key] = set()
        self._server_accepts = False  # the last exchange was carried out

    @property
    def busy(self) -> bool:
        """Something that was rejected waits to be sent again."""
        return bool(self._waiting)

    @property
    def outcomes(self) -> int:
        """How many outcomes wait to be sent again."""
        return sum(len(batch.outcomes) for batch in self._waiting)

    def take(self) -> OutcomeBatch:
        """What the next exchange carries. Nothing, if the server first has to show that it accepts exchanges at all."""
        return self._waiting.popleft() if self._server_accepts else OutcomeBatch()

    def put_back(self, batch: OutcomeBatch) -> Outcome | None:
        """An exchange with this batch failed for another reason. Its halves wait behind the other batches, so that a
        part on which a server fails each time does not hold them up. A single entry leaves the search: an outcome is
        returned, to be reported as usual, and a progress report is dropped."""
        if len(batch) > 1:
            self._waiting.extend(_parts(batch, None))
            return None
        return batch.outcomes[0] if batch.outcomes else None

    def passed(self, batch: OutcomeBatch) -> None:
        """An exchange with this batch was carried out."""
        self._server_accepts = True
        if self._plain:
            self._plain.difference_update(map(_key, batch.outcomes))

    def doubt(self) -> None:
        """An exchange failed for another reason, or the next one goes to another server. A rejection then says nothing
        about the contents until an empty exchange was accepted."""
        self._server_accepts = False

    def refused(self, batch: OutcomeBatch, problem: Problem, *, trial: bool) -> Rejection:
        """A server rejected an exchange with this batch. `trial`: the batch came from `take`."""
        accepts, self._server_accepts = self._server_accepts and trial, False
        if not batch:
            return Rejection(not_contents=True, returned=self._release())
        if len(batch) > 1 or not accepts:
            self._waiting.extendleft(reversed(_parts(batch, problem.field)))
            return Rejection()
        if batch.progress:
            return Rejection(rejected=batch.progress[0])
        outcome = batch.outcomes[0]
        key = _key(outcome)
        if key in self._plain:
            self._plain.discard(key)
            return Rejection(rejected=outcome, let_go=True)
        self._plain.add(key)
        self._waiting.appendleft(OutcomeBatch([plain(outcome, problem)]))
        return Rejection(rejected=outcome)

    def _release(self) -> OutcomeBatch:
        everything = OutcomeBatch(
            [outcome for batch in self._waiting for outcome in batch.outcomes],
            [report for batch in self._waiting for report in batch.progress],
        )
        self._waiting.clear()
        return everything


def plain(outcome: Outcome, problem: Problem) -> Outcome:
    """Return the outcome without the parts that could be rejected.

    RETURNED and CANCELLED stay as they are. Everything else becomes FAILED, because a result that is not kept is no
    SUCCESS. It is not retried, because the next attempt would end the same way, unless the attempt had failed and asked
    for a retry, or a retry rule of the job names this error.
    """
    bare = Outcome(outcome.run_id, outcome.fence, outcome.status)
    if outcome.status in ("RETURNED", "CANCELLED"):
        return bare
    bare.status = "FAILED"
    bare.error = f"the server refused this outcome: {in_words(problem)}"
    bare.cause = Cause(errors=[REFUSED])
    bare.retry = outcome.status == "FAILED" and outcome.retry
    return bare


def in_words(problem: Problem) -> str:
    """For example `invalid_input ran_ms: expected a number`."""
    field = _NAMED.sub("", problem.field or "").removeprefix(".")
    expected = f"expected {problem.expected}" if problem.expected else problem.detail
    words = " ".join(part for part in (problem.code or str(problem.status), field.replace("$", "")) if part)
    return error_text(f"{words}: {expected}"[:_LONGEST_WORDS])


def _parts(batch: OutcomeBatch, field: str | None) -> list[OutcomeBatch]:
    """The entry that the server names and the rest; or two halves."""
    if len(batch) == 1:
        return [batch]
    found = _NAMED.match(field or "")
    if found is not None:
        place = int(found[2]) + (len(batch.outcomes) if found[1] == "progress" else 0)
        if place < len(batch) and (found[1] == "progress" or place < len(batch.outcomes)):
            return [_joined(_slice(batch, 0, place), _slice(batch, place + 1)), _slice(batch, place, place + 1)]
    half = len(batch) // 2
    return [_slice(batch, 0, half), _slice(batch, half)]


def _slice(batch: OutcomeBatch, start: int, end: int | None = None) -> OutcomeBatch:
    """Entries `start` to `end`, counting the progress reports after the outcomes."""
    count = len(batch.outcomes)
    end = len(batch) if end is None else end
    return OutcomeBatch(batch.outcomes[start:end], batch.progress[max(0, start - count) : max(0, end - count)])


def _joined(one: OutcomeBatch, other: OutcomeBatch) -> OutcomeBatch:
    return OutcomeBatch(one.outcomes + other.outcomes, one.progress + other.progress)


def _key(outcome: Outcome) -> Key:
    return (outcome.run_id.int, outcome.fence)
