"""The rules for schedules that end after some runs, and for backfills."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta

from tests.cluster.history import COMPLETED_JOB, SCHEDULED_JOB, Event, History, Row
from tests.cluster.oracle import fires_between, parse
from tests.cluster.rules_fire import begins_generation, generation_of, is_fire

_BACKFILL = "backfill:"
_COMPLETED = 4
_MOMENT = timedelta(microseconds=1)


def s1_a_schedule_makes_max_runs(history: History) -> Iterator[str]:
    """Never more, and it ends with the last of them."""
    births = defaultdict(list)
    for birth in history.births:
        if birth.new["trigger"] is None and birth.new["job_id"] is not None:
            births[birth.tx, birth.new["job_id"]].append(parse(birth.new["scheduled_for"]))
    for job, events in history.jobs.items():
        made = 0
        for event in events:
            if event.op == "I" or begins_generation(event):
                made = 0
            elif is_fire(event) and event.old["next_fire_at"] is not None:
                first, last = parse(event.old["next_fire_at"]), parse(event.new["last_fired_for"])
                made += sum(first <= moment <= last for moment in births[event.tx, job])
            if event.op != "D":
                yield from _counts_are_exact(job, event.new, made)
                made = made if "max_runs" in event.new["schedule"] else 0


def _counts_are_exact(job: str, row: Row, made: int) -> Iterator[str]:
    most = row["schedule"].get("max_runs")
    if most is None:
        return
    left = row["runs_left"]
    if left != most - made or made > most:
        yield f"{job} has made {made} run(s) of {most}, and says that {left} are left"
    if row["status"] == COMPLETED_JOB and left:
        yield f"{job} is completed, and {left} run(s) of {most} are left"
    if row["status"] == SCHEDULED_JOB and left == 0:
        yield f"{job} has made all of its {most} runs, and goes on"


def s1_a_fire_that_is_made_up_for_runs_once(history: History) -> Iterator[str]:
    """Each fire of a backfill has one run, by the schedule or by a backfill. When it is completed, none is left out."""
    jobs = {(event.new["job_id"], event.new["generation"]) for event in history.of("backfills")}
    fires = [birth for birth in history.births if _of(birth.new) in jobs and _stands_for_a_fire(birth.new)]
    for (job, _, moment), count in Counter((*_of(one.new), one.new["scheduled_for"]) for one in fires).items():
        if count > 1:
            yield f"{job}: {count} runs for {moment}, with those of backfills"
    rows = {str(event.new["backfill_id"]): event.new for event in history.of("backfills")}
    for birth in fires:
        row, moment = rows.get(str(birth.new["trigger"]).removeprefix(_BACKFILL)), birth.new["scheduled_for"]
        if row is not None and parse(moment) not in _fires_of(row):
            yield f"{row['job_id']}: its backfill made a run for {moment}, which is no fire of its range"
    for event in history.of("backfills"):
        if event.new["state"] == _COMPLETED and event.old.get("state") != _COMPLETED:
            yield from _is_whole(history, event)


def _is_whole(history: History, event: Event) -> Iterator[str]:
    born = {parse(birth.new["scheduled_for"]) for birth in history.births
            if birth.seq < event.seq and _of(birth.new) == _of(event.new) and birth.new["scheduled_for"]}  # fmt: skip
    if left_out := [moment for moment in _fires_of(event.new) if moment not in born]:
        yield f"{event.new['job_id']}: its backfill is completed without {left_out}"


def s10_no_more_runs_of_a_backfill_than_allowed(history: History) -> Iterator[str]:
    allowed: dict[str, int] = {}
    live: dict[str, set[str]] = defaultdict(set)
    for event in history.events:
        if event.table == "backfills":
            allowed[str(event.new["backfill_id"])] = event.new["concurrency"]
        elif event.table == "runs" and str(event.row["trigger"]).startswith(_BACKFILL):
            backfill = str(event.row["trigger"]).removeprefix(_BACKFILL)
            if event.op == "I":
                live[backfill].add(event.new["run_id"])
                if len(live[backfill]) > allowed.get(backfill, 0):
                    yield f"backfill {backfill} has {len(live[backfill])} runs, {allowed.get(backfill)} are allowed"
            elif event.op == "D":
                live[backfill].discard(event.old["run_id"])


def _fires_of(row: Row) -> list[object]:
    return [*fires_between(row["schedule"], parse(row["from_at"]), parse(row["to_at"]) - _MOMENT)]


def _stands_for_a_fire(row: Row) -> bool:
    return row["trigger"] is None or str(row["trigger"]).startswith(_BACKFILL)


def _of(row: Row) -> tuple[str | None, int]:
    return row["job_id"], generation_of(row)
