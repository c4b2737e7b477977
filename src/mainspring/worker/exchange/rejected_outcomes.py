"""Finds what a server refuses among all that an exchange carries. Pure: no I/O and no clock.

A refused exchange has changed nothing (see docs/workers.md), so its parts can be tried again. After each refusal one
exchange goes that carries nothing: if that is refused too, it is not the contents. Then what was refused goes in parts:
apart where the server names the culprit, else by halves, until one outcome or one word of progress is refused by
itself. The others are recorded on the way.
"""

from __future__ import annotations

import re
from collections import deque

import msgspec

from mainspring.wire.exchange import Outcome, Progress
from mainspring.wire.execution import Cause
from mainspring.wire.problems import Problem
from mainspring.worker.execution.attempt import Key, clean_text

REFUSED = "OutcomeRefused"  # what a retry rule may name
_NAMED = re.compile(r"(outcomes|progress)\[(\d+)\]")
_LONGEST_WORDS = 500


class Batch(msgspec.Struct):
    """What one exchange carries."""

    outcomes: list[Outcome] = []
    words: list[Progress] = []

    def __len__(self) -> int:
        return len(self.outcomes) + len(self.words)


class Verdict(msgspec.Struct):
    """What a refusal led to. `blameless`: the contents are not the cause, and `returned` is what was under suspicion.
    `guilty` was refused by itself; an outcome is tried once more in its plain form, unless this was its plain form."""

    accepted: bool = False
    returned: Batch = msgspec.field(default_factory=Batch)
    rejected: Outcome | Progress | None = None
    let_go: bool = False


class RejectedOutcomes:
    def __init__(self) -> None:
        self._waiting: deque[Batch] = deque()
        self._plain: set[Key] = set()
        self._proven = False  # the last exchange was taken

    @property
    def busy(self) -> bool:
        """Something under suspicion waits to be tried."""
        return bool(self._waiting)

    @property
    def outcomes(self) -> int:
        """How many are under suspicion and wait."""
        return sum(len(batch.outcomes) for batch in self._waiting)

    def take(self) -> Batch:
        """What the next exchange shall carry."""
        return self._waiting.popleft() if self._proven else Batch()

    def put_back(self, batch: Batch) -> Outcome | None:
        """It was not carried out, and nobody says that it is for what is in it. Its halves wait behind the others, who
        shall not wait for ever for a part at which a server stumbles each time. One alone is let out of the search:
        gives it if it is an outcome, to be reported as others are; a word of progress is dropped."""
        if len(batch) > 1:
            self._waiting.extend(_parts(batch, None))
            return None
        return batch.outcomes[0] if batch.outcomes else None

    def passed(self, batch: Batch) -> None:
        """It was carried out."""
        self._proven = True
        if self._plain:
            self._plain.difference_update(map(_key, batch.outcomes))

    def doubt(self) -> None:
        """An exchange failed for another reason, or the next goes to another server: what it refuses then proves
        nothing."""
        self._proven = False

    def refused(self, batch: Batch, problem: Problem, *, trial: bool) -> Verdict:
        """A server will not take an exchange that carried this, whether on trial or for the first time."""
        proven, self._proven = self._proven and trial, False
        if not batch:
            return Verdict(accepted=True, returned=self._release())
        if len(batch) > 1 or not proven:
            self._waiting.extendleft(reversed(_parts(batch, problem.field)))
            return Verdict()
        if batch.words:
            return Verdict(rejected=batch.words[0])
        outcome = batch.outcomes[0]
        key = _key(outcome)
        if key in self._plain:
            self._plain.discard(key)
            return Verdict(rejected=outcome, let_go=True)
        self._plain.add(key)
        self._waiting.appendleft(Batch([plain(outcome, problem)]))
        return Verdict(rejected=outcome)

    def _release(self) -> Batch:
        everything = Batch(
            [outcome for batch in self._waiting for outcome in batch.outcomes],
            [word for batch in self._waiting for word in batch.words],
        )
        self._waiting.clear()
        return everything


def plain(outcome: Outcome, problem: Problem) -> Outcome:
    """The same with nothing in it that could be refused.

    What had not started, or was cancelled, stays so. All else has FAILED: its result is not kept, so it is no SUCCESS.
    It is not tried again, because it would end the same way; unless it had failed anyway and wanted to be, or a retry
    rule of the job names this error.
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
    """Such as `invalid_input ran_ms: a number`."""
    field = _NAMED.sub("", problem.field or "").removeprefix(".")
    expected = f"expected {problem.expected}" if problem.expected else problem.detail
    words = " ".join(part for part in (problem.code or str(problem.status), field.replace("$", "")) if part)
    return clean_text(f"{words}: {expected}"[:_LONGEST_WORDS])


def _parts(batch: Batch, field: str | None) -> list[Batch]:
    """The others, and the one that the server names; or two halves."""
    if len(batch) == 1:
        return [batch]
    found = _NAMED.match(field or "")
    if found is not None:
        place = int(found[2]) + (len(batch.outcomes) if found[1] == "progress" else 0)
        if place < len(batch) and (found[1] == "progress" or place < len(batch.outcomes)):
            return [_joined(_slice(batch, 0, place), _slice(batch, place + 1)), _slice(batch, place, place + 1)]
    half = len(batch) // 2
    return [_slice(batch, 0, half), _slice(batch, half)]


def _slice(batch: Batch, start: int, end: int | None = None) -> Batch:
    """As if the words stood behind the outcomes."""
    count = len(batch.outcomes)
    end = len(batch) if end is None else end
    return Batch(batch.outcomes[start:end], batch.words[max(0, start - count) : max(0, end - count)])


def _joined(one: Batch, other: Batch) -> Batch:
    return Batch(one.outcomes + other.outcomes, one.words + other.words)


def _key(outcome: Outcome) -> Key:
    return (outcome.run_id.int, outcome.fence)
