"""Events reach the handlers that want them, in the transaction that causes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import uuid7
from mainspring.operations.lifecycle import dispatch
from mainspring.operations.lifecycle.dispatch import EventKind, runs_ended
from mainspring.operations.lifecycle.effects import Effects, Part
from mainspring.operations.lifecycle.events import RunEnded, RunsCreated

pytestmark = pytest.mark.anyio

NO_CONNECTION: Any = None
FIRST, SECOND = 1, 2


def an_end(follows: int) -> RunEnded:
    return RunEnded(uuid7(), follows, None, int(StoredState.SUCCESS))


class Recorder:
    """Wants the ends with these bits. Each call adds the ends in `then` once."""

    def __init__(self, name: str, bits: int, calls: list[tuple[str, list[UUID]]]) -> None:
        self.name = name
        self.bits = bits
        self.calls = calls
        self.then: list[RunEnded] = []

    def wants(self, end: RunEnded, /) -> bool:
        return bool(end.follows & self.bits)

    async def handle(self, _: Any, ends: Sequence[RunEnded], effects: Effects, /) -> None:
        self.calls.append((self.name, [end.run_id for end in ends]))
        effects.ended += self.then
        self.then = []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[UUID]]]:
    monkeypatch.setattr(dispatch, "RUNS_ENDED", EventKind[RunEnded]("ends of a test"))
    return []


async def test_each_handler_sees_each_end_that_it_wants_once(calls: list[tuple[str, list[UUID]]]) -> None:
    first, second = Recorder("first", FIRST, calls), Recorder("second", SECOND, calls)
    dispatch.RUNS_ENDED.handled_by(first, second)
    effects = Effects(ended=[one := an_end(FIRST), both := an_end(FIRST | SECOND), an_end(64)])
    await runs_ended(NO_CONNECTION, effects)
    await runs_ended(NO_CONNECTION, effects)
    assert calls == [("first", [one.run_id, both.run_id]), ("second", [both.run_id])]


async def test_ends_that_follow_reach_the_first_handler_first(calls: list[tuple[str, list[UUID]]]) -> None:
    """It locks rows before the others do."""
    first, second = Recorder("first", FIRST, calls), Recorder("second", SECOND, calls)
    dispatch.RUNS_ENDED.handled_by(first, second)
    second.then = [after := an_end(FIRST | SECOND)]
    effects = Effects(ended=[cause := an_end(SECOND)])
    await runs_ended(NO_CONNECTION, effects)
    assert calls == [("second", [cause.run_id]), ("first", [after.run_id]), ("second", [after.run_id])]


async def test_a_process_that_lists_no_handlers_loses_no_event() -> None:
    kind = EventKind[RunsCreated]("runs of a test")
    with pytest.raises(RuntimeError, match=r"import mainspring\.operations\.handlers"):
        await kind.happened(NO_CONNECTION, [RunsCreated({1: 1})], Effects())
    kind.handled_by()
    await kind.happened(NO_CONNECTION, [RunsCreated({1: 1})], Effects())
    with pytest.raises(RuntimeError, match="listed already"):
        kind.handled_by()


class Counted(Part):
    number: int = 0

    def merge(self, other: Counted, /) -> None:
        self.number += other.number


async def test_the_parts_of_features_are_merged_with_the_effects() -> None:
    one, other, third = Effects(), Effects(ready={1: 1}), Effects()  # type: ignore[arg-type]
    other.of(Counted).number, third.of(Counted).number = 2, 3
    one.merge(other)
    one.merge(third)
    assert (one.of(Counted).number, dict(one.ready)) == (5, {1: 1})
    assert other.of(Counted).number == 2
