"""The rules for runs: legal transitions, one end, outcomes from the current holder, no overlap, none left behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from mainspring.domain.transitions import Follows
from mainspring.kernel.config import DEFAULT_TIMING
from tests.cluster.history import (
    CANCELLED,
    EXCLUSIVE_RESCUE,
    FAILED,
    HELD,
    QUEUED,
    RESCUE,
    RUNNING,
    SKIPPED,
    SUCCESS,
    WAITING,
    Event,
    History,
    Row,
)
from tests.cluster.oracle import parse

_ENDS = {
    QUEUED: {CANCELLED, FAILED},
    WAITING: {SUCCESS, CANCELLED, FAILED},
    HELD: {CANCELLED, FAILED},
    RUNNING: {SUCCESS, FAILED, CANCELLED},
}
_ALLOW = 1  # the overlap rule under which runs of a job may overlap
_SLOW = 3.0  # seconds that a rescue may take, a sweep and the age of the last beat included
_CUT_OFF_GRACE = DEFAULT_TIMING.cut_off_grace
_GONE_AFTER_CANCEL = 5.0 + 2.0 + 2.0  # kill grace, a heartbeat, and 2 s
_CLOCK_ERROR = 0.05  # the clocks of the ledger and the database, and /proc/uptime has a resolution of 10 ms


def s4_legal_steps_and_one_end(history: History) -> Iterator[str]:
    for run, life in history.runs.items():
        ended_in = None
        for event in life:
            if ended_in is not None and not (event.tx == ended_in and event.op == "D"):
                yield f"run {run} has ended, and then: {_step(event)}"
            if event.table == "run_history":
                if event.op != "I":
                    yield f"run {run}: the history was changed: {_step(event)}"
                    continue
                ended_in = event.tx
                yield from _legal_end(run, history, event)
            elif event.op == "U":
                yield from _legal_step(run, event)
            elif event.op == "I" and (event is not life[0] or not _is_new(event.new)):
                yield f"run {run} was born as {_step(event)}"
            elif event.op == "D" and not _written_down(history, event):
                yield f"run {run} vanished: it left runs and is not in the history"


def _is_new(row: Row) -> bool:
    """A run that needs slots is HELD first. A step that has parents or members is WAITING. One that is handed off to a
    worker is as after its first claim."""
    if row["state"] == RUNNING:
        return bool(row["fence"] == row["attempt"] == 1 and row["worker_id"] and not row.get("limit_keys"))
    waits = row["state"] == WAITING and row.get("rule") is not None
    return bool(waits or row["state"] == (HELD if row.get("limit_keys") else QUEUED))


def _followed(old: Row, new: Row) -> bool:
    """The run was created for a step, which waits for it."""
    before = {**old, "follows": (old.get("follows") or 0) | int(Follows.CHILD)}
    return str(new["trigger"]).startswith("parent:") and before == {**new, "follows": new.get("follows")}


def _legal_step(run: str, event: Event) -> Iterator[str]:
    old, new = event.old, event.new
    match old["state"], new["state"]:
        case (1, 2):
            legal = new["fence"] > old["fence"] and new["attempt"] == old["attempt"] + 1 and new["worker_id"]
        case (2, 1):
            legal = new["fence"] > old["fence"] and new["attempt"] <= old["attempt"] and new["worker_id"] is None
        case (2, 2):  # a cancel was requested, or a start or progress was told; the holder does not change
            kept = _kept(old, new)
            asked = old["cancel_requested_at"] is None and new["cancel_requested_at"] is not None
            told = _progress(old) < _progress(new) and _without_progress(old) == _without_progress(new)
            began = old.get("started_at") != new.get("started_at") and _without_start(old) == _without_start(new)
            legal = kept and (asked or told or began or _adopted(old, new))
        case (2, 4):  # it backs off without its slots, or needs another token or leave of a breaker
            spent = bool(old.get("rate_keys") or old.get("breaker_key"))
            kept = new["attempt"] == old["attempt"] or (spent and new["attempt"] == old["attempt"] - 1)
            legal = new["fence"] > old["fence"] and kept and new["worker_id"] is None
        case (1, 3) | (3, 1) | (3, 4) | (3, 3):  # a workflow run begins, a step is ready, a mapped one has members
            legal = _kept(old, new) and new.get("rule") is not None
        case (2, 3):  # the service that it has called answers later
            legal = new["fence"] == old["fence"] + 1 and new["worker_id"] is None and new["attempt"] == old["attempt"]
        case (4, 1) | (4, 4):  # admitted, or it stands elsewhere
            legal = _kept(old, new)
        case (1, 1):
            legal = _kept(old, new) and (_adopted(old, new) or _redefined(old, new) or _followed(old, new))
        case _:
            legal = False
    if not legal:
        yield f"run {run}: {_step(event)} is not legal"


def _kept(old: Row, new: Row) -> bool:
    return all(old[name] == new[name] for name in ("fence", "attempt", "worker_id"))


def _adopted(old: Row, new: Row) -> bool:
    """A changed overlap rule has given it another slot, or the new limit of its queue counts it."""
    return any(set(old.get(name) or ()) < set(new.get(name) or ()) for name in ("limit_keys", "gates"))


def _redefined(old: Row, new: Row) -> bool:
    """Before its first attempt a unique job got what another submission says, or was pushed to a later time by it."""
    changed = {name for name in new if old.get(name) != new[name]}
    if new["attempt"] or not changed <= {"spec", "ready_at", "expires_at"}:
        return False
    rule = (new["spec"] or {}).get("unique") or {}
    later = rule.get("else") == "later" and parse(old["ready_at"]) < parse(new["ready_at"])
    return later or "ready_at" not in changed


def _progress(row: Row) -> int:
    """The number of the last progress report."""
    return int(row.get("progress_number") or 0)


def _without_progress(row: Row) -> Row:
    """Progress also shows that the attempt has started, and brings what its processes have used."""
    told = ("started_at", "usage")
    return {name: value for name, value in row.items() if not name.startswith("progress") and name not in told}


def _without_start(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "started_at"}


def _legal_end(run: str, history: History, event: Event) -> Iterator[str]:
    """An end deletes the row of `runs` in the same transaction, with the same state, fence and worker."""
    if event.new["state"] == SKIPPED:
        return
    left = [e for e in history.by_tx[event.tx] if e.table == "runs" and e.op == "D" and e.old["run_id"] == run]
    if not left:
        yield f"run {run} ended as {event.new['state']} and is still there"
    elif event.new["state"] not in _ENDS.get(left[0].old["state"], set()):
        yield f"run {run} ended as {event.new['state']} out of state {left[0].old['state']}"
    elif (event.new["fence"], event.new["attempt"]) != (left[0].old["fence"], left[0].old["attempt"]):
        yield f"run {run}: its end tells another fence or attempt than its last row"


def _written_down(history: History, event: Event) -> bool:
    run = event.old["run_id"]
    return any(e.table == "run_history" and e.new.get("run_id") == run for e in history.by_tx[event.tx])


def s5_outcomes_of_the_current_holder(history: History) -> Iterator[str]:
    finished = {(line.run, line.attempt): line.at for line in history.lines if line.what == "end"}
    for run, life in history.runs.items():
        for event in life:
            if event.table == "run_history" and event.new["state"] == SUCCESS:
                attempt = event.new["attempt"]
                if not attempt and event.new.get("worker_id") is None:  # a workflow run, or a mapped step
                    continue
                at = finished.get((run, attempt))
                if at is None:
                    yield f"run {run} is a SUCCESS by attempt {attempt}, which has not finished in the ledger"
                elif at > event.at + _CLOCK_ERROR:
                    yield f"run {run} was a SUCCESS {at - event.at:.2f} s before attempt {attempt} finished"
    yield from _stale_reports(history)


def _stale_reports(history: History) -> Iterator[str]:
    """A stale outcome changes nothing. It is only acknowledged if it is a repeated one."""
    seen: set[tuple[str, int]] = set()
    for report in history.reports:
        life = history.runs.get(report.run, [])
        holding = _fence_at(life, report.began)
        if holding != report.fence:
            if any(report.began < event.at < report.ended for event in life):
                yield f"run {report.run}: an outcome of fence {report.fence} changed it while {holding} was current"
            if report.taken and (report.run, report.fence) not in seen:
                yield f"run {report.run}: an outcome of fence {report.fence} was taken while {holding} was current"
        seen.add((report.run, report.fence))


def _fence_at(life: list[Event], moment: float) -> int | None:
    """The fence of a live run at that time. None before its creation and after its end."""
    fence = None
    for event in life:
        if event.at <= moment:
            fence = event.new["fence"] if event.table == "runs" and event.op != "D" else None
    return fence


def s6_no_two_at_once(history: History) -> Iterator[str]:
    """Two attempts of one run do not overlap, nor two runs of a job without overlap. Ordinary attempts may overlap for
    the cut-off grace if a worker was told that the database is unavailable. A worker that is paused or gets no response
    ends its runs in time, and so does its watchdog."""
    by_run: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for (run, attempt), (first, last) in history.extents.items():
        by_run[run].append((attempt, first, last))
    for run, attempts in by_run.items():
        attempts.sort(key=lambda item: item[1])
        for (earlier, _, last), (later, first, _) in pairwise(attempts):
            if first + history.lingering(first) < last and not _excused(history, run, first, last):
                yield f"run {run}: attempt {later} began {last - first:.2f} s before attempt {earlier} was gone"
        if len(attempts) > 1 and _delivery(history, run) == "at_most_once":
            yield f"run {run} is at most once and was begun {len(attempts)} times"
    yield from _overlapping_runs(history)


def _excused(history: History, run: str, first: float, last: float) -> bool:
    if _exclusive(history, run) or last - first > _CUT_OFF_GRACE:
        return False
    return any(fault.cuts and fault.begin <= first <= fault.end + _CUT_OFF_GRACE for fault in history.injections)


def _exclusive(history: History, run: str) -> bool:
    """Whether the run is at most once, has overlap skip, or has limits."""
    life = history.runs.get(run, [])
    job = life[0].row["job_id"] if life else None
    one_at_a_time = job in history.jobs and history.jobs[job][-1].row["overlap"] == 0
    limited = any(event.row.get("limit_keys") for event in life)
    return one_at_a_time or limited or _delivery(history, run) == "at_most_once"


def _overlapping_runs(history: History) -> Iterator[str]:
    by_job: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for (run, _), (first, last) in history.extents.items():
        # A one-time job with an id of ours gives it to its run.
        job = (history.runs[run][0].new["job_id"] or run) if run in history.runs else run
        if job in history.jobs and all(event.row["overlap"] != _ALLOW for event in history.jobs[job]):
            by_job[job].append((first, last, run))
    for job, extents in by_job.items():
        extents.sort()
        for (_, last, one), (first, _, other) in pairwise(extents):
            if one != other and first + history.lingering(first) < last:
                yield f"{job} runs one at a time, and {other} began {last - first:.2f} s before {one} was gone"


def _delivery(history: History, run: str) -> str:
    life = history.runs.get(run)
    return (life[0].row["spec"] or {}).get("delivery", "") if life else ""


def s11_after_a_cancel_nothing_begins(history: History) -> Iterator[str]:
    """After an acknowledged cancel there is no claim, and the processes end soon."""
    last_line: dict[str, float] = defaultdict(float)
    for line in history.lines:
        last_line[line.run] = max(last_line[line.run], line.at)
    lives: dict[str, list[str]] = defaultdict(list)
    for run, life in history.runs.items():
        lives[life[0].row["job_id"] or run].append(run)
    for call in history.calls:
        if call.verb != "cancel" or call.result != "ok":
            continue
        gone_by = history.deadline(call.ended, _GONE_AFTER_CANCEL)
        for run in lives[call.target]:
            birth = history.runs[run][0]
            if birth.row["trigger"] not in (None, "at") and birth.at > call.began:
                continue  # a one-time job that was cancelled can be repeated
            if history.runs[run][0].at > call.ended:
                continue  # of a job that was revived or created again; S2 looks at those
            for event in history.runs[run]:
                if event.at > call.ended and event.old.get("state") == QUEUED and event.new.get("state") == RUNNING:
                    yield f"run {run} was claimed {event.at - call.ended:.2f} s after its cancel was acknowledged"
            if last_line[run] > gone_by:
                yield f"run {run} lived on for {last_line[run] - call.ended:.1f} s after its cancel"


def s11_cancelled_when_the_last_process_is_gone(history: History) -> Iterator[str]:
    """No process of a run writes after the run is CANCELLED. No child process writes after any end."""
    last_line: dict[str, float] = defaultdict(float)
    for line in history.lines:
        last_line[line.run] = max(last_line[line.run], line.at)
    for event in history.of("run_history"):
        run = event.new["run_id"]
        family = str(event.new.get("name")).startswith("family")
        if event.op != "I" or run not in last_line or not (family or event.new["state"] == CANCELLED):
            continue
        last = last_line[run]
        if last > event.at + history.lingering(event.at) and not _excused(history, run, event.at, last):
            yield f"run {run} ended as {event.new['state']}, and a process of it lived on for {last - event.at:.2f} s"


def l3_a_dead_workers_runs_are_requeued(history: History) -> Iterator[str]:
    for ended in history.exits:
        incarnations = set(history.workers.get(ended.process, ()))
        if not incarnations:
            continue
        deadlines = {
            exclusive: history.deadline(ended.at, (EXCLUSIVE_RESCUE if exclusive else RESCUE) + _SLOW)
            for exclusive in (True, False)
        }
        for run, life in history.runs.items():
            deadline = deadlines[_exclusive(history, run)]
            if history.events[-1].at < deadline:
                continue
            held = [event for event in life if event.at <= ended.at]
            if not held or held[-1].new.get("worker_id") not in incarnations or held[-1].table != "runs":
                continue
            after = [event.at for event in life if event.at > ended.at and not _still_held(event)]
            if min(after, default=float("inf")) > deadline:
                took = f"{after[0] - ended.at:.1f} s" if after else "for ever"
                yield f"run {run} of {ended.process} stayed with the dead {took}"


def l7_none_is_rescued_alive(history: History) -> Iterator[str]:
    """A rescued attempt has ended: it writes no line after its rescue. An ordinary attempt whose worker was told that
    the database is unavailable may continue for the cut-off grace."""
    last_line = {key: last for key, (_, last) in history.extents.items()}
    for event in history.of("attempts"):
        run, attempt = event.new["run_id"], event.new["attempt"]
        if event.new["outcome"] != "LOST" or (run, attempt) not in last_line:
            continue
        last = last_line[run, attempt]
        if last > event.at + history.lingering(event.at) and not _excused(history, run, event.at, last):
            yield f"run {run}: attempt {attempt} was taken for lost and lived on for {last - event.at:.2f} s"


def _still_held(event: Event) -> bool:
    return event.table == "runs" and event.op == "U" and event.new["state"] == RUNNING


def l5_nothing_is_left_at_rest(history: History) -> Iterator[str]:
    if not history.at_rest:
        return
    for row in history.live_runs:
        yield f"run {row['run_id']} is left in state {row['state']}, {_whose(history, row)}"


def _whose(history: History, row: Row) -> str:
    if row["state"] != RUNNING:
        return f"ready at {row['ready_at']}"
    names = {worker: name for name, workers in history.workers.items() for worker in workers}
    begun = any(line.run == row["run_id"] and line.attempt == row["attempt"] for line in history.lines)
    return f"held by {names.get(row['worker_id'], row['worker_id'])}, which {'began' if begun else 'never began'} it"


def _step(event: Event) -> str:
    names = ("state", "fence", "attempt", "worker_id")
    before = {name: event.old.get(name) for name in names} if event.old else None
    after = {name: event.new.get(name) for name in names} if event.new else None
    return f"{event.table} {event.op} {before} -> {after}"
