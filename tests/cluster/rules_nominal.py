"""The rules for nominal times, which are those of the rule and the calendar before jitter. Each fires once, whatever
becomes of the schedule."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from tests.cluster.history import SCHEDULED_JOB, Event, History, Row
from tests.cluster.oracle import has, is_hashed, nominal_of, parse
from tests.cluster.rules_fire import begins_generation, definition_fired, generation_of, is_change

_BY_SCHEDULE = (None, "at")  # the triggers of fires; runs by hand, replays and backfills have others
_RECURRING = ("CRON", "INTERVAL", "RRULE")


def s1_one_run_per_nominal_time(history: History) -> Iterator[str]:
    """One for each job, generation, trigger and nominal time. Runs by hand, replays and backfills are excepted."""
    born: dict[tuple[str, int, str | None, datetime], list[Event]] = defaultdict(list)
    for birth in history.births:
        new = birth.new
        if new["job_id"] is None or new["trigger"] not in _BY_SCHEDULE:
            continue
        born[new["job_id"], generation_of(new), new["trigger"], _nominal(new)].append(birth)
        yield from _is_the_nominal_time(history, birth)
    for (job, generation, _, moment), births in born.items():
        if len({birth.new["run_id"] for birth in births}) > 1:
            runs = ", ".join(f"{birth.new['run_id']} for {birth.new['scheduled_for']}" for birth in births)
            yield f"job {job}, generation {generation}: the nominal time {moment} has the runs {runs}"
    for job, events in history.jobs.items():
        for event in events:
            yield from _rises(job, event)


def _nominal(run: Row) -> datetime:
    return parse(run.get("nominal_for") or run["scheduled_for"])


def _is_the_nominal_time(history: History, birth: Event) -> Iterator[str]:
    definition = definition_fired(history, birth, birth.new["job_id"])
    if definition is None or "jitter" not in definition["schedule"]:
        return
    expected = nominal_of(definition["schedule"], parse(birth.new["scheduled_for"]))
    if _nominal(birth.new) != expected:
        told = birth.new.get("nominal_for")
        yield f"run {birth.new['run_id']} of {birth.new['job_id']} has the nominal time {told}, and it is {expected}"


def _rises(job: str, event: Event) -> Iterator[str]:
    """The nominal time up to which all are dealt with never becomes earlier."""
    if event.op != "U" or begins_generation(event):
        return
    before, after = event.old.get("last_nominal_for"), event.new.get("last_nominal_for")
    if before is not None and (after is None or parse(after) < parse(before)):
        yield f"{job}: last_nominal_for went from {before} back to {after}"


def s2_a_job_keeps_its_seed(history: History) -> Iterator[str]:
    """`H` and jitter take their values from the hash of tenant and id, so that no change moves the fires."""
    for job, events in history.jobs.items():
        for event in events:
            schedule = event.new.get("schedule") or {}
            if "jitter" not in schedule and not is_hashed(schedule):
                continue
            expected = zlib.crc32(f"{event.new['tenant_id']}/{job}".encode())
            if schedule.get("seed") != expected:
                yield f"{job}: version {event.new['version']} has the seed {schedule.get('seed')}, not {expected}"
                break


def l2_a_change_loses_no_time_that_has_come(history: History) -> Iterator[str]:
    """A nominal time that had come when the schedule was changed, and waited for its jitter: if the new schedule has it
    too, it is the next one."""
    for job, events in history.jobs.items():
        for event in events:
            if is_change(event) and _is_another_rule(event.old, event.new):
                yield from _keeps_what_has_come(job, event)


def _is_another_rule(old: Row, new: Row) -> bool:
    return (
        old["schedule"] != new["schedule"]
        and old["status"] == new["status"] == SCHEDULED_JOB
        and "jitter" in old["schedule"]
        and {old["schedule"]["kind"], new["schedule"]["kind"]} <= {*_RECURRING}
        and None not in (old["next_fire_at"], new["next_fire_at"])
        and "calendar" not in old["schedule"]
        and "calendar" not in new["schedule"]
    )


def _keeps_what_has_come(job: str, event: Event) -> Iterator[str]:
    old, new = event.old, event.new
    waiting, following = nominal_of(old["schedule"], parse(old["next_fire_at"])), parse(new["next_fire_at"])
    if waiting > parse(new["updated_at"]) or not has(new["schedule"], waiting):
        return
    if nominal_of(new["schedule"], following) != waiting:
        yield f"{job}: the change at {new['updated_at']} lost {waiting}, which waited for {old['next_fire_at']}"
