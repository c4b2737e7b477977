"""Some tasks only so many at a time: they wait for their own kind, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections import Counter

import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.wire.exchange import RunOrder
from mainspring.worker.execution.attempt import CANCELLED, SUCCEEDED, Attempt, AttemptEnding, Execute, Stop, key_of
from mainspring.worker.execution.runner import Runner

from .exchange_server import an_order


class Stage:
    """An executor whose runs end when the test says so."""

    killable = True
    isolates = True
    has_processes = False

    def __init__(self) -> None:
        self.running: dict[Attempt, asyncio.Event] = {}
        self.most: Counter[str] = Counter()
        self.order: list[str] = []

    def offers(self) -> dict[str, Execute]:
        return dict.fromkeys(("a", "b", "c"), self._execute)

    def kill_all(self) -> None: ...

    async def _execute(self, attempt: Attempt) -> AttemptEnding:
        task = attempt.order.task
        self.running[attempt] = done = asyncio.Event()
        self.order.append(task)
        self.most[task] = max(self.most[task], sum(other.order.task == task for other in self.running))
        self.most["all"] = max(self.most["all"], len(self.running))
        try:
            await done.wait()
        except asyncio.CancelledError:
            return CANCELLED
        finally:
            del self.running[attempt]
        return SUCCEEDED


class Scene:
    def __init__(self, slots: int, limits: dict[str, int]) -> None:
        self.stage = Stage()
        self.ended: list[tuple[Attempt, AttemptEnding]] = []
        self.runner = Runner(
            slots,
            [self.stage],
            kill_grace=1.0,
            report=lambda attempt, ending: self.ended.append((attempt, ending)),
            notify=lambda: None,
            task_limits=limits,
        )

    def take(self, *tasks: str) -> list[Attempt]:
        attempts = [attempt_of(an_order(task)) for task in tasks]
        self.runner.take(attempts)
        return attempts

    def running(self) -> list[str]:
        return sorted(attempt.order.task for attempt in self.stage.running)

    async def settle(self) -> None:
        for _ in range(60):  # a carrier that was held up for 3 ms gives way before it has started anything
            await asyncio.sleep(0)


def attempt_of(order: RunOrder) -> Attempt:
    return Attempt(order, key_of(order), 0.0)


def test_a_full_task_waits_and_does_not_block_those_behind_it() -> None:
    async def scenario() -> None:
        scene = Scene(4, {"a": 1})
        first, *_ = scene.take("a", "a", "a", "b", "b")
        await scene.settle()
        assert scene.running() == ["a", "b", "b"]
        assert (scene.runner.holding, scene.runner.unstarted) == (5, 2)
        scene.stage.running[first].set()
        await scene.settle()
        assert scene.running() == ["a", "b", "b"]
        assert scene.runner.unstarted == 1

    uvloop.run(scenario())


def test_what_is_dropped_does_not_start_when_others_end() -> None:
    """Neither what waits for its task nor what waits for a slot: in a process that a task forked it would run twice."""

    async def scenario() -> None:
        scene = Scene(2, {"a": 1})
        first, _, second, _ = scene.take("a", "a", "b", "b")
        await scene.settle()
        assert (scene.running(), scene.runner.unstarted) == (["a", "b"], 2)
        scene.runner.drop_unstarted()
        for attempt in (first, second):
            scene.stage.running[attempt].set()
        await scene.settle()
        assert (scene.running(), scene.runner.holding) == ([], 0)
        assert [attempt for attempt, _ in scene.ended] == [first, second]

    uvloop.run(scenario())


def test_what_waits_for_its_task_can_be_cancelled_and_handed_back() -> None:
    async def scenario() -> None:
        scene = Scene(4, {"a": 1})
        _, second, third = scene.take("a", "a", "a")
        await scene.settle()
        scene.runner.stop(second, Stop.CANCEL)
        assert scene.ended == [(second, CANCELLED)]
        assert scene.runner.return_unstarted() == 1
        assert [(attempt, ending.status) for attempt, ending in scene.ended[1:]] == [(third, "RETURNED")]
        assert scene.runner.holding == 1

    uvloop.run(scenario())


@settings(max_examples=60)
@given(
    st.integers(1, 6),
    st.dictionaries(st.sampled_from("ab"), st.integers(1, 3), max_size=2),
    st.lists(st.sampled_from("abc"), max_size=40),
    st.randoms(use_true_random=False),
)
def test_no_task_exceeds_its_limit_and_every_run_ends(slots, limits, tasks, chance) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        scene = Scene(slots, limits)
        pending = list(tasks)
        while pending or scene.runner.holding:
            count = chance.randint(0, len(pending))
            scene.take(*pending[:count])
            pending = pending[count:]
            await scene.settle()
            could_start = scene.runner.unstarted and len(scene.runner.active) < slots
            if could_start:
                waiting = {attempt.order.task for attempt in scene.runner.held() if not attempt.started}
                running = Counter(scene.running())
                assert all(running[task] >= limits.get(task, slots) for task in waiting), "somebody waits in vain"
            if scene.stage.running:
                chance.choice(list(scene.stage.running.values())).set()
            await scene.settle()
        assert len(scene.ended) == len(tasks)
        for task, limit in limits.items():
            assert scene.stage.most[task] <= limit
        assert scene.stage.most["all"] <= slots

    uvloop.run(scenario())
