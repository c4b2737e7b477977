"""The rules for rates, and for the limits and pauses of queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.cluster.history import QUEUED, RUNNING, Event, History
from tests.cluster.line_book import read_book, settled

AHEAD = 0.25  # seconds by which tokens are given out early


def s10_no_more_starts_than_a_rate_allows(history: History) -> Iterator[str]:
    """In any window of t seconds at most rate * t + 2 * burst + rate * 250 ms attempts begin."""
    book = read_book(history)
    starts: dict[int, list[float]] = defaultdict(list)
    for (run, _), (first, _last) in history.extents.items():
        for line in {key for event in history.runs.get(run, ()) for key in event.row.get("limit_keys") or ()}:
            if book.limit(line).paced:
                starts[line].append(first)
    for line, times in starts.items():
        paces = [(every, burst) for _, every, burst in book.limit(line).paces if every is not None]
        rate, burst = max(1 / every for every, _ in paces), max(burst for _, burst in paces)
        if found := too_many(sorted(times), rate, burst, history.lingering):
            number, window = found
            yield f"{book.name(line)}: {number} attempts began within {window:.2f} s at {rate:g}/s, burst {burst}"


def too_many(times: list[float], rate: float, burst: int, late: Callable[[float], float]) -> tuple[int, float] | None:
    """The first window with too many of these times. `late`: how much later than it began an attempt may be seen."""
    for end, last in enumerate(times):
        for begin in range(end + 1):
            window = last - times[begin]
            if end - begin + 1 > rate * (window + late(last) + AHEAD) + 2 * burst + 1e-6:
                return end - begin + 1, window
    return None


@dataclass
class Gate:
    """What a queue allowed from which time on: how many at once, and whether it was paused."""

    changes: list[tuple[float, int | None, bool]] = field(default_factory=list)

    def most(self, history: History, claim: Event) -> int | None:
        """The most that the claim may have known to be allowed. None: any number."""
        numbers = [number for number, _ in self._known(history, claim)]
        known = [number for number in numbers if number is not None]
        return max(known) if len(known) == len(numbers) else None

    def paused(self, history: History, claim: Event) -> bool:
        return all(paused for _, paused in self._known(history, claim))

    def _known(self, history: History, claim: Event) -> list[tuple[int | None, bool]]:
        """What the claim may have known."""
        all_changes = [(float("-inf"), None, False), *self.changes]
        found: list[tuple[int | None, bool]] = []
        for index, (begin, number, paused) in enumerate(all_changes):
            over = settled(history, all_changes[index + 1][0]) if index + 1 < len(all_changes) else float("inf")
            if begin <= claim.at and over >= claim.began:
                found.append((number, paused))
        return found


def s10_no_more_runs_of_a_queue_than_allowed(history: History) -> Iterator[str]:
    """A claim finds room in the limit of its queue, and no run of a paused queue is claimed."""
    gates: dict[str, Gate] = defaultdict(Gate)
    queues: dict[int, str] = {}
    running: dict[str, set[str]] = defaultdict(set)
    for event in history.events:
        if event.table == "gates" and event.new.get("queue") is not None:
            paused = event.new["paused_at"] is not None
            gates[event.new["queue"]].changes.append((event.at, event.new["concurrency"], paused))
        elif event.table == "lanes":
            queues[event.new["lane_id"]] = event.new["queue"]
    for event in history.of("runs"):
        run, queue = event.row["run_id"], queues.get(event.row.get("lane_id", 0), "")
        gate = gates.get(queue)
        if gate is None:
            continue
        if event.new.get("state") != RUNNING:
            running[queue].discard(run)
        elif _is_claim(event):
            most = gate.most(history, event)
            if most is not None and len(running[queue]) + 1 > most:
                yield f"queue {queue} allows {most}: {run} was claimed beside {sorted(running[queue])}"
            if gate.paused(history, event):
                yield f"queue {queue} is paused: {run} was claimed"
            running[queue].add(run)


def _is_claim(event: Event) -> bool:
    """A claim, or a hand-off of a run that is created."""
    return event.new.get("state") == RUNNING and event.old.get("state") in (QUEUED, None)
