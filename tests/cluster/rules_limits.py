"""The rules for limits: never more than allowed, strict lines in order, exact counts, and nobody waits before a line
that has room."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from tests.cluster.history import HELD, QUEUED, RUNNING, Call, Event, History
from tests.cluster.line_book import LineBook, Stay, read_book, slots, stays

_CANCEL_PREVIOUS = 3
_ADMITTED_WITHIN = 5.0  # seconds: two rounds of the admitter, and what it takes to wait for locks
_TOLD_WITHIN = 0.5  # seconds between the creation of a run and the lock of those that it replaces
_AHEAD = float("inf")


def s10_no_more_slots_than_allowed(history: History) -> Iterator[str]:
    """Whoever is admitted finds room. A limit that is lowered, or a job whose runs must not overlap any more, may have
    more owners than it allows, and then nobody is admitted."""
    book = read_book(history)
    for taking in book.takings:
        most = book.limit(taking.line).most(history, taking.event.began, taking.event.at)
        if most is not None and len(taking.owners) + 1 > most and not taking.adopted:
            yield f"{book.name(taking.line)} allows {most}: {taking.run} beside {sorted(taking.owners)}"


def s10_no_more_attempts_than_allowed(history: History) -> Iterator[str]:
    """The same from the ledger: the attempts that were at work at the same time."""
    book = read_book(history)
    at_work: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
    for (run, attempt), (first, last) in history.extents.items():
        for line in _needed(history, run, attempt):
            if (run, line) not in book.adopted:
                at_work[line].append((first, last, f"{run} ({attempt})"))
    for line, attempts in at_work.items():
        most = book.limit(line).most(history, -_AHEAD, _AHEAD)
        if most is None:
            continue
        working: list[tuple[float, str]] = []
        for first, last, attempt in sorted(attempts):
            while working and working[0][0] <= first + history.lingering(first):
                heappop(working)
            if len(working) >= most:
                beside = [name for _, name in sorted(working)]
                yield f"{book.name(line)} allows {most}: {attempt} began beside {beside}"
            heappush(working, (last, attempt))


def _needed(history: History, run: str, attempt: int) -> frozenset[int]:
    """The slots that the attempt owned when it was claimed."""
    claims = [event for event in history.runs.get(run, ()) if _is_claim(event) and event.new["attempt"] == attempt]
    return slots(claims[-1].new) if claims else frozenset()


def _is_claim(event: Event) -> bool:
    return event.table == "runs" and (event.old.get("state"), event.new.get("state")) == (QUEUED, RUNNING)


def s10_strict_lines_go_one_after_another(history: History) -> Iterator[str]:
    """While a line is strict, a run that has begun ends before the next one is admitted, also if it fails or its worker
    dies. A run that was acknowledged before another one was sent ends before that is admitted, whatever the order was
    when they were sent.

    Admissions and ends are in the order of the audit, because both lock the line. A run comes into a line without that
    lock, so it counts from its commit on."""
    book = read_book(history)
    sent, known = _submissions(history)
    lines: dict[int, dict[str, _Standing]] = defaultdict(dict)
    for event in history.of("runs"):
        run = event.row["run_id"]
        for line in event.row.get("limit_keys") or ():
            if not book.limit(line).ever_strict or (run, line) in book.adopted:
                continue
            if event.op == "D":
                lines[line].pop(run, None)
                continue
            standing = lines[line].setdefault(run, _Standing(event.visible))
            if (event.old.get("state"), event.new["state"]) == (HELD, QUEUED):
                standing.admitted = event.visible
                birth = history.runs[run][0]
                since = max(event.began, birth.visible)  # it has seen the run, and what was committed before it
                if book.limit(line).is_strict(since, event.at):
                    seen = event.began if birth.tx == event.tx else since
                    earlier = {other: place for other, place in lines[line].items() if place.since <= seen}
                    yield from _passed(book, line, event, earlier, sent, known)
            standing.begun |= _is_claim(event)


@dataclass
class _Standing:
    """A run that needs a slot of a line. since: from when on others saw that."""

    since: float
    admitted: float = _AHEAD
    begun: bool = False


def _passed(
    book: LineBook,
    line: int,
    admission: Event,
    earlier: dict[str, _Standing],
    sent: dict[str, float],
    known: dict[str, float],
) -> Iterator[str]:
    """Who should have ended before the run was admitted."""
    run = admission.row["run_id"]
    for other, standing in sorted(earlier.items()):
        if other == run:
            continue
        if standing.begun and book.limit(line).is_strict(standing.admitted, admission.at):
            yield f"{book.name(line)} is strict: {run} was admitted while {other} had begun and not ended"
        if known.get(other, _AHEAD) < sent.get(run, 0.0):
            yield f"{book.name(line)} is strict: {run} was admitted before {other}, which was acknowledged earlier"


def _submissions(history: History) -> tuple[dict[str, float], dict[str, float]]:
    """When each run was first sent, and when it was first acknowledged. Only runs that are themselves a job."""
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.verb == "submit":
            calls[call.body.get("idempotency_key") or str(id(call))].append(call)
    sent: dict[str, float] = {}
    known: dict[str, float] = {}
    for same in calls.values():
        for call in same:
            if call.result == "ok" and call.answer["job_id"] in history.runs:
                run = call.answer["job_id"]
                sent[run] = min(other.began for other in same)
                known[run] = min(known.get(run, _AHEAD), call.ended)
    return sent, known


def s10_a_later_run_replaces_the_earlier_ones(history: History) -> Iterator[str]:
    """Overlap cancel_previous: with a new run, every other live run of the job has been told to stop or has ended."""
    rule: dict[str, int] = {}
    runs: dict[str, set[str]] = defaultdict(set)
    for event in history.events:
        if event.table == "jobs":
            rule[event.row["job_id"]] = event.row["overlap"]
        elif event.table == "runs" and event.op == "I" and (job := event.new["job_id"]) is not None:
            runs[job].add(event.new["run_id"])
            if rule.get(job) == _CANCEL_PREVIOUS and event is _last_birth(history, event):
                last = history.by_tx[event.tx][-1]
                for run in sorted(runs[job] - {event.new["run_id"]}):
                    if (state := _left_in(history, run, last)) is not None:
                        yield f"{job}: {event.new['run_id']} replaces {run}, which is left in state {state}"


def _last_birth(history: History, birth: Event) -> Event:
    """The last run of the job that the transaction created."""
    same = [event for event in history.by_tx[birth.tx] if event.table == "runs" and event.op == "I"]
    return [event for event in same if event.new["job_id"] == birth.new["job_id"]][-1]


def _left_in(history: History, run: str, last: Event) -> int | None:
    """The state of a run that lives after this write and was not told to stop. Its worker may have reported its end
    before it could be told."""
    life = history.runs[run]
    now = [event for event in life if event.seq <= last.seq][-1]
    told = now.new.get("state") == RUNNING and now.new["cancel_requested_at"] is not None
    soon = history.deadline(last.at, _TOLD_WITHIN)
    following = [event for event in life if event.seq > last.seq][:1]
    ending = any(_ends(event) and event.began <= soon for event in following)
    if _ends(now) or told or ending:
        return None
    return int(now.new["state"])


def _ends(event: Event) -> bool:
    return event.table == "run_history" or event.op == "D"


def s10_counts_are_exact(history: History) -> Iterator[str]:
    """Each transaction changes a count by the slots that it gives and takes."""
    book = read_book(history)
    for tx, events in history.by_tx.items():
        counted: Counter[int] = Counter()
        moved: Counter[int] = Counter()
        for event in events:
            if event.table == "limit_keys" and event.op == "U":
                counted[event.new["key_id"]] += event.new["in_use"] - event.old["in_use"]
            elif event.table == "runs":
                moved.update(slots(event.new))
                moved.subtract(slots(event.old))
        for line in counted.keys() | moved.keys():
            if counted[line] != moved[line]:
                yield f"{book.name(line)}: transaction {tx} counted {counted[line]:+d} for {moved[line]:+d} slots"
    for row in history.counts:
        if row["in_use"] != row["owners"]:
            yield f"{row['name']}[{row['key']}]: in_use is {row['in_use']}, and {row['owners']} runs own a slot"


def l5_nobody_waits_before_a_line_with_room(history: History) -> Iterator[str]:
    book = read_book(history)
    for stay in stays(history):
        if book.limit(stay.line).paced:
            continue  # whoever waits there waits for a token
        for begin, over in _room(history, book, stay):
            if over > history.deadline(begin, _ADMITTED_WITHIN):
                yield f"run {stay.run} was HELD for {over - begin:.1f} s although {book.name(stay.line)} had room"


def _room(history: History, book: LineBook, stay: Stay) -> Iterator[tuple[float, float]]:
    """The periods of the stay in which the line had room all the time."""
    begin: float | None = None
    for start, end, owners in _periods(book.users(stay.line), stay):
        allowed = _least(book, stay.line, start, end)
        if allowed is None or owners < allowed:
            begin = start if begin is None else begin
            continue
        if begin is not None:
            yield begin, start
        begin = None
    if begin is not None:
        yield begin, stay.until


def _periods(owned: list[tuple[float, int]], stay: Stay) -> Iterator[tuple[float, float, int]]:
    """(begin, end, owners) within the stay."""
    begin, owners = stay.since, 0
    for at, count in owned:
        if at >= stay.until:
            break
        if at > begin:
            yield begin, at, owners
            begin = at
        owners = count
    if begin < stay.until:
        yield begin, stay.until, owners


def _least(book: LineBook, line: int, since: float, until: float) -> int | None:
    """The least that the limit allowed in this time."""
    changes = book.limit(line).allowed
    found = [
        slots
        for index, (begin, slots) in enumerate(changes)
        if begin <= until and (index + 1 == len(changes) or changes[index + 1][0] >= since)
    ]
    numbers = [number for number in found if number is not None]
    return min(numbers, default=None)
