"""Queues share a worker's slots by weight: never more than the slots, nobody starves, and what is idle is lent."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.worker.exchange.queue_weights import QueueWeights, SlotDivision, parse_queues

NAMES = "abcd"


class Line:
    """The server: queues with work, and claims share by share."""

    def __init__(self, waiting: Mapping[str, int]) -> None:
        self.waiting = Counter(waiting)

    def fill(self, free: int, division: SlotDivision) -> list[str]:
        taken: list[str] = []
        for share in division.shares:
            kept = sum(queue not in taken for queue in share.keep_for)
            count = min(share.most, free - len(taken) - kept, self.waiting[share.queue])
            if count > 0:
                self.waiting[share.queue] -= count
                taken += [share.queue] * count
        return taken


class Scene:
    def __init__(self, slots: int, weights: Mapping[str, int], waiting: Mapping[str, int]) -> None:
        self.slots = slots
        self.shares = QueueWeights(slots, weights)
        self.line = Line(waiting)
        self.held: Counter[str] = Counter()

    @property
    def free(self) -> int:
        return self.slots - self.held.total()

    def exchange(self) -> None:
        taken = self.line.fill(self.free, self.shares.divide(self.free, self.held))
        assert len(taken) <= self.free
        self.held.update(taken)

    def end(self, queue: str) -> None:
        self.held[queue] -= 1
        assert self.held[queue] >= 0

    def settle(self) -> None:
        for _ in range(4):
            self.exchange()


weights_of_queues = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 12), min_size=1)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[int, dict[str, int], dict[str, int]]:
    weights = draw(weights_of_queues)
    slots = draw(st.integers(len(weights), 60))
    waiting = {queue: draw(st.integers(0, 40)) for queue in weights}
    return slots, weights, waiting


@given(scenes())
def test_shares_add_up_to_the_slots_and_everybody_has_one(drawn: tuple[int, dict[str, int], dict[str, int]]) -> None:
    slots, weights, _ = drawn
    shares = QueueWeights(slots, weights).shares
    assert sum(shares.values()) == slots
    assert min(shares.values()) >= 1
    spare, total = slots - len(weights), sum(weights.values())
    for queue, weight in weights.items():
        assert shares[queue] <= max(1.0, slots * weight / total) + 1 or spare == 0


@given(scenes(), st.lists(st.sampled_from(NAMES), max_size=60), st.randoms(use_true_random=False))
def test_whatever_ends_and_arrives_the_slots_are_never_exceeded_and_one_stays_for_each_idle_queue(
    drawn: tuple[int, dict[str, int], dict[str, int]], arrivals: list[str], chance: random.Random
) -> None:
    scene = Scene(*drawn)
    for name in [*arrivals, None, None]:
        if name in scene.shares.shares:
            scene.line.waiting[name] += chance.randint(1, 5)
        running = sorted(scene.held.elements())
        if running and chance.random() < 0.5:
            scene.end(chance.choice(running))
        scene.exchange()
        idle = [queue for queue in scene.shares.shares if not scene.held[queue]]
        assert scene.free >= len(idle), "light work would wait behind heavy work"
        assert not any(scene.line.waiting[queue] for queue in idle), "an idle queue with work gets its slot at once"


@given(scenes())
def test_work_waits_only_while_the_other_slots_are_taken_or_kept(
    drawn: tuple[int, dict[str, int], dict[str, int]],
) -> None:
    scene = Scene(*drawn)
    scene.settle()
    if scene.line.waiting.total():
        idle = [queue for queue in scene.shares.shares if not scene.held[queue]]
        assert scene.free == len(idle)


@settings(max_examples=25)
@given(weights_of_queues, st.integers(0, 30), st.randoms(use_true_random=False))
def test_shares_converge_while_every_queue_has_work(weights: dict[str, int], more: int, chance: random.Random) -> None:
    slots = len(weights) + more
    first = min(weights)
    scene = Scene(slots, weights, {first: 10_000})
    scene.settle()  # one queue had everything to itself
    scene.line.waiting.update(dict.fromkeys(weights, 100_000))
    for _ in range(40 * slots):
        scene.end(chance.choice(sorted(scene.held.elements())))
        scene.exchange()
    assert dict(scene.held) == scene.shares.shares


def test_a_queue_without_work_lends_its_share_but_for_one_slot() -> None:
    scene = Scene(9, {"heavy": 1, "light": 8}, {"heavy": 100})
    scene.settle()
    assert scene.held == {"heavy": 8}
    scene.line.waiting["light"] = 100
    scene.exchange()
    assert scene.held == {"heavy": 8, "light": 1}, "light work does not wait for heavy work"
    for _ in range(7):
        scene.end("heavy")
        scene.exchange()
    assert scene.held == {"heavy": 1, "light": 8}


def test_quick_work_alone_has_all_the_slots() -> None:
    scene = Scene(9, {"heavy": 1, "light": 8}, {"light": 100})
    scene.settle()
    assert scene.held == {"light": 8}, "nothing is known of it yet"
    scene.end("light")
    scene.shares.ended("light", 0.2)
    scene.settle()
    assert scene.held == {"light": 9}
    scene.line.waiting["heavy"] = 100
    scene.end("light")
    scene.exchange()
    assert scene.held == {"light": 8, "heavy": 1}, "the next slot is for the queue furthest below its share"


def test_work_that_lasts_leaves_a_slot_whatever_it_weighs() -> None:
    for weights in ({"heavy": 1, "light": 8}, {"heavy": 8, "light": 1}):
        scene = Scene(9, weights, {"heavy": 100})
        scene.shares.ended("heavy", 30.0)
        scene.settle()
        assert scene.held == {"heavy": 8}


def test_a_long_run_tells_at_once_and_is_forgotten_slowly() -> None:
    shares = QueueWeights(2, {"a": 1, "b": 1})

    def takes_the_last(lasting: tuple[str, ...] = ()) -> bool:
        return any(share.queue == "a" for share in shares.divide(1, {"a": 1}, lasting=lasting).shares)

    assert not takes_the_last(), "nothing is known of it"
    shares.ended("a", 0.1)
    assert takes_the_last()
    assert not takes_the_last(lasting=("a",)), "one of them goes on for longer than usual"
    shares.ended("a", 30.0)
    quick_ones = 0
    while not takes_the_last():
        shares.ended("a", 0.1)
        quick_ones += 1
    assert 20 < quick_ones < 60


@given(scenes(), st.sets(st.sampled_from(NAMES)))
def test_no_slot_is_idle_while_quick_work_waits(
    drawn: tuple[int, dict[str, int], dict[str, int]], quick: set[str]
) -> None:
    scene = Scene(*drawn)
    for queue in quick & scene.shares.shares.keys():
        scene.shares.ended(queue, 0.1)
    scene.settle()
    idle = [queue for queue in scene.shares.shares if not scene.held[queue]]
    if any(scene.line.waiting[queue] for queue in quick):
        assert scene.free == 0
    elif scene.line.waiting.total():
        assert scene.free <= len(idle)


def test_what_one_leaves_is_divided_among_the_others_about_by_weight() -> None:
    scene = Scene(40, {"a": 4, "b": 2, "idle": 4}, {"a": 1000, "b": 1000})
    scene.exchange()
    assert scene.held.total() == 39
    assert 1.5 <= scene.held["a"] / scene.held["b"] <= 3


def test_what_is_on_its_way_is_not_asked_for_again() -> None:
    shares = QueueWeights(9, {"heavy": 1, "light": 8})
    first = shares.divide(1, {"heavy": 8})
    assert {share.queue for share in first.shares} == {"light"}, "the last slot is kept"
    assert first.kept == {"light"}
    second = shares.divide(1, {"heavy": 7}, [first])
    assert "heavy" in {share.queue for share in second.shares}, "the slot for light work is in the first one"


@pytest.mark.parametrize(
    ("text", "queues", "weights"),
    [
        ("a", ("a",), None),
        (" a , b,", ("a", "b"), None),
        ("heavy=1,light=8", ("heavy", "light"), {"heavy": 1, "light": 8}),
        ("heavy, light = 8", ("heavy", "light"), {"heavy": 1, "light": 8}),
    ],
)
def test_queues_as_they_are_written(text: str, queues: tuple[str, ...], weights: dict[str, int] | None) -> None:
    assert parse_queues(text, 16) == (queues, weights)


@pytest.mark.parametrize(
    "text", ["", ",", "heavy=0", "heavy=x", "heavy=-1", "heavy=", "heavy=1.5", "=3", "a,a", "a=1,a=2", "a=1,b=1,c=1"]
)
def test_a_mistake_in_the_queues_is_said(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_queues(text, 2)
    assert caught.value.field == "queues"
    assert caught.value.hint
