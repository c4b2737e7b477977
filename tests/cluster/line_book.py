"""Reads from the audit who stood in which line of a limit, and who owned its slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.cluster.history import HELD, QUEUED, RUNNING, Event, History, Row

_CHANGE_TAKES = 3.0  # seconds between the write of a changed limit and its commit, at most
_AHEAD = float("inf")
SET = "set"  # the verb of a call that changes a limit


def settled(history: History, at: float) -> float:
    """When nobody acts by what was before a change that was written at this time: when it was acknowledged."""
    answers = [call.ended for call in history.calls if call.verb == SET and call.result == "ok" and call.began <= at]
    latest = history.deadline(at, _CHANGE_TAKES)
    return min([latest, *(ended for ended in answers if ended >= at)])


@dataclass
class Limit:
    """What the limit allowed from which time on. None: any number."""

    name: str = ""
    allowed: list[tuple[float, int | None]] = field(default_factory=list)
    orders: list[Event] = field(default_factory=list)  # what it said about its order, in turn
    paces: list[tuple[float, float | None, int]] = field(default_factory=list)  # from when on: every, burst

    @property
    def paced(self) -> bool:
        return any(every is not None for _, every, _ in self.paces)

    @property
    def ever_strict(self) -> bool:
        return any(change.new["strict"] for change in self.orders)

    def is_strict(self, since: float, until: float) -> bool:
        """Whether its order was strict all the time, for a transaction that saw everything which was committed by
        `since`. A change may be seen as soon as it is written."""
        seen = [change for change in self.orders if change.visible <= since]
        later = [change for change in self.orders if change.visible > since and change.at <= until]
        return bool(seen) and all(change.new["strict"] for change in (seen[-1], *later))

    def most(self, history: History, since: float, until: float) -> int | None:
        """The most that it may have allowed between the two times. A transaction may still read an old value when the
        new one is written but not committed."""
        found: list[int] = []
        for index, (begin, slots) in enumerate(self.allowed):
            over = _AHEAD
            if index + 1 < len(self.allowed):
                over = settled(history, self.allowed[index + 1][0])
            if begin <= until and over >= since:
                if slots is None:
                    return None
                found.append(slots)
        return max(found, default=None)


@dataclass(frozen=True)
class Taking:
    """A run got a slot. `owners` had one before. `adopted`: it was QUEUED or RUNNING already, and its job got another
    overlap rule."""

    event: Event
    line: int
    run: str
    owners: frozenset[str]
    adopted: bool


@dataclass
class LineBook:
    limits: dict[int, Limit] = field(default_factory=lambda: defaultdict(Limit))
    limit_of: dict[int, int] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    takings: list[Taking] = field(default_factory=list)
    adopted: set[tuple[str, int]] = field(default_factory=set)
    owned: dict[int, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    kept: dict[int, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))

    def limit(self, line: int) -> Limit:
        return self.limits[self.limit_of.get(line, 0)]

    def users(self, line: int) -> list[tuple[float, int]]:
        """From when on how many owned a slot. In a strict line also who keeps others from it without one: a run that
        backs off, or waits in another line."""
        return self.kept[line] if self.limit(line).ever_strict else self.owned[line]

    def name(self, line: int) -> str:
        return f"{self.limit(line).name}[{self.keys.get(line, '')}]"


def slots(row: Row) -> frozenset[int]:
    """The lines whose slots the run owns."""
    if row.get("state") not in (QUEUED, RUNNING):
        return frozenset()
    return frozenset(row.get("limit_keys") or ())


def _keeps(row: Row) -> frozenset[int]:
    """The lines whose slots the run owns, or would keep others from if they were strict."""
    if row.get("state") != HELD:
        return slots(row)
    asleep = row.get("wake_at") is not None
    return frozenset(line for line in row.get("limit_keys") or () if asleep or line != row.get("held_key"))


def read_book(history: History) -> LineBook:
    book = LineBook()
    owners: dict[int, set[str]] = defaultdict(set)
    keepers: dict[int, set[str]] = defaultdict(set)
    for event in history.events:
        if event.table == "limits":
            limit = book.limits[event.new["limit_id"]]
            limit.name = event.new["name"]
            limit.allowed.append((event.at, event.new["slots"]))
            limit.orders.append(event)
            limit.paces.append((event.at, event.new.get("every"), event.new.get("burst") or 0))
        elif event.table == "limit_keys" and event.op == "I":
            book.limit_of[event.new["key_id"]] = event.new["limit_id"]
            book.keys[event.new["key_id"]] = event.new["key"]
        elif event.table == "runs":
            _note(book, owners, event)
            for line in _keeps(event.old) ^ _keeps(event.new):
                keepers[line].symmetric_difference_update({event.row["run_id"]})
                book.kept[line].append((event.at, len(keepers[line])))
    return book


def _note(book: LineBook, owners: dict[int, set[str]], event: Event) -> None:
    run, before, after = event.row["run_id"], slots(event.old), slots(event.new)
    for line in before - after:
        owners[line].discard(run)
        book.owned[line].append((event.at, len(owners[line])))
    for line in after - before:
        adopted = event.old.get("state") in (QUEUED, RUNNING)
        if adopted:
            book.adopted.add((run, line))
        book.takings.append(Taking(event, line, run, frozenset(owners[line]), adopted))
        owners[line].add(run)
        book.owned[line].append((event.at, len(owners[line])))


@dataclass(frozen=True)
class Stay:
    """A HELD run stood in a line, ready to start from `since` on."""

    run: str
    line: int
    since: float
    until: float


def stays(history: History) -> Iterator[Stay]:
    end = max((event.at for event in history.events), default=0.0)
    end = max([end, *(row["now"].timestamp() + history.offset for row in history.live_runs if "now" in row)])
    for run, life in history.runs.items():
        standing: tuple[int, float] | None = None
        for event in life:
            if event.table != "runs":
                continue
            place = _place(history, event)
            if standing is not None and (place is None or place[0] != standing[0]):
                yield Stay(run, *standing, event.at)
            if place is None or standing is None or place[0] != standing[0]:
                standing = place
        if standing is not None:
            yield Stay(run, *standing, end)


def _place(history: History, event: Event) -> tuple[int, float] | None:
    row = event.new
    if row.get("state") != HELD or row.get("held_key") is None:
        return None
    wakes = event.at if row.get("wake_at") is None else history.moment(row["wake_at"])
    return row["held_key"], max(event.at, wakes)
