"""The rules for clients and operators: keys, acknowledgements, processes that stay up, drains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.cluster.history import CANCELLED, CANCELLED_JOB, COMPLETED_JOB, PAUSED_JOB, Call, Exit, History
from tests.cluster.rules_fire import UNKNOWN_FOR, generation_of
from tests.cluster.tasks import POISONED

_DRAIN = {"worker": 30.0 + 5.0 + 5.0, "server": 15.0, "scheduler": 10.0}
_FENCED_OFF = 70
_KILLED = -9
_SOON = 5.0  # seconds after its last line in which a worker that was poisoned is seen to have ended
_MOMENT = 0.1  # seconds: two faults at once ask a process to stop just after they killed it


def s7_one_job_per_key(history: History) -> Iterator[str]:
    answers: dict[str, set[tuple[str, int]]] = defaultdict(set)
    bodies: dict[str, list[Call]] = defaultdict(list)
    for call in _submits(history):
        key = call.body.get("idempotency_key")
        if key is not None and call.result == "ok":
            answers[key].add((call.answer["job_id"], generation_of(call.answer)))
            bodies[key].append(call)
    for key, jobs in answers.items():
        if len(jobs) > 1:
            yield f"key {key} made {len(jobs)} jobs: {sorted(jobs)}"
        if any(call.body != bodies[key][0].body for call in bodies[key]):
            yield f"key {key} was taken with two different bodies"
        if key in history.keys and history.keys[key] not in {job for job, _ in jobs}:
            yield f"key {key} was answered with {sorted(jobs)} and stands for {history.keys[key]}"
    for call in _submits(history):
        if call.result == "refused" and call.status not in (409, 422, 429):
            yield f"submit {call.body} was refused with {call.status}: {call.answer}"


def s7_one_run_per_key_of_run_now(history: History) -> Iterator[str]:
    """The scope of such a key is its job."""
    made: dict[tuple[str, str], set[str]] = defaultdict(set)
    bodies: dict[tuple[str, str], list[Call]] = defaultdict(list)
    created = {event.new["run_id"] for event in history.births}
    for call in history.calls:
        key = call.body.get("idempotency_key") if call.verb == "runNow" else None
        if key is not None and call.result == "ok":
            made[call.target, key].add(call.answer["run_id"])
            bodies[call.target, key].append(call)
            if call.answer["run_id"] not in created:
                yield f"run {call.answer['run_id']} was acknowledged and is nowhere"
    for (job, key), runs in made.items():
        if len(runs) > 1:
            yield f"key {key} of job {job} made {len(runs)} runs: {sorted(runs)}"
        if any(call.body != bodies[job, key][0].body for call in bodies[job, key]):
            yield f"key {key} of job {job} was taken with two different bodies"


def s7_a_run_is_retried_once(history: History) -> Iterator[str]:
    """Manual runs repeat the run of a one-time job at another time, a retry at the same."""
    births = {event.new["run_id"]: event.new for event in history.births}
    retries: dict[str, list[str]] = defaultdict(list)
    for run, new in births.items():
        kind, _, repeated = (new["trigger"] or "").partition(":")
        if kind == "replay" and repeated in births and births[repeated]["scheduled_for"] == new["scheduled_for"]:
            retries[repeated].append(run)
    for run, repeats in retries.items():
        if len(repeats) > 1:
            yield f"run {run} was retried {len(repeats)} times: {sorted(repeats)}"


def s8_acknowledged_is_there_refused_is_not(history: History) -> Iterator[str]:
    created = {(event.new["job_id"] or event.new["run_id"], generation_of(event.new)) for event in history.births}
    names = {event.new["name"] for event in history.births} | {
        event.row["name"] for events in history.jobs.values() for event in events
    }
    for call in _submits(history):
        if call.result == "ok" and not _there(history, call.answer["job_id"], generation_of(call.answer), created):
            yield f"job {call.answer['job_id']} was acknowledged and is nowhere"
        name = str(call.body.get("name", ""))
        if call.result == "refused" and name in names and name.startswith("refused-"):
            yield f"submit {name} was refused and has happened"
    yield from _steering_is_kept(history)
    yield from _cancels_are_kept(history)


def _there(history: History, job: str, generation: int, created: set[tuple[str, int]]) -> bool:
    """Whether this generation has a run or a row. A later one may have replaced the row of an ended job."""
    if (job, generation) in created:
        return True
    events = [event for event in history.jobs.get(job, ()) if generation_of(event.row) == generation]
    return bool(events) and (events[-1].op != "D" or events[-1].old["status"] in (CANCELLED_JOB, COMPLETED_JOB))


def _steering_is_kept(history: History) -> Iterator[str]:
    """After the last acknowledged pause or delete, without later calls, the job has the requested state."""
    wanted = {"pause": PAUSED_JOB, "cancel": CANCELLED_JOB}
    last: dict[str, Call] = {}
    for call in history.calls:
        if call.verb in ("pause", "resume", "cancel", "change", "submit") and call.result != "refused":
            last[call.target] = call
    for job, call in last.items():
        events = history.jobs.get(job)
        if call.result != "ok" or call.verb not in wanted or not events or events[-1].op == "D":
            continue
        if pending(history, call):
            continue
        if events[-1].new["status"] != wanted[call.verb]:
            yield f"{job}: its {call.verb} was acknowledged, and its status is {events[-1].new['status']}"
    for call in history.calls:
        policy = call.body.get("misfire", {}).get("policy") if call.verb == "change" else None
        if policy is not None and call.result == "ok" and not _was_written(history, call, policy):
            yield f"{call.target}: a change to policy {policy} was acknowledged and never written"


def pending(history: History, call: Call) -> bool:
    """Whether another call to the job, to which no response came, may still be carried out after this one."""
    return any(
        other.target == call.target
        and other.verb in ("pause", "resume", "cancel", "change", "submit")
        and other.verb != call.verb
        and other.result == "unknown"
        and other.began < call.ended < history.after(other.began, UNKNOWN_FOR)
        for other in history.calls
    )


def _was_written(history: History, call: Call, policy: str) -> bool:
    """Whether the job had this policy at some time between request and response. Another call may have changed it again
    before the response came. An earlier attempt of the same call counts too."""
    life = [event for event in history.jobs.get(call.target, []) if event.at <= call.ended and event.new]
    before = [event for event in life if event.visible < call.began]
    meanwhile = [event for event in life if event.visible >= call.began]
    policies = [(event.new["spec"] or {}).get("misfire", {}).get("policy", "once") for event in before[-1:] + meanwhile]
    return policy in policies


def _cancels_are_kept(history: History) -> Iterator[str]:
    for call in history.calls:
        if call.verb != "cancel" or call.result != "ok":
            continue
        for event in history.runs.get(call.target, []):
            if event.table == "run_history" and event.at > call.ended and event.new["state"] != CANCELLED:
                # The worker may have finished and sent its report when the cancel was requested.
                finished = [
                    line.at for line in history.lines if line.run == call.target and line.what in ("end", "fail")
                ]
                if not finished or min(finished) > history.after(call.ended, 4.0):
                    yield f"run {call.target} ended as {event.new['state']} after its cancel was acknowledged"


def l6_nothing_exits_by_itself(history: History) -> Iterator[str]:
    """A worker that was cut off can end itself or be ended by its watchdog. A task can end it, too. No other process
    ends without a request."""
    for ended in history.exits:
        if ended.wanted or not ended.ready:
            continue
        if ended.role == "worker" and (ended.code in (_FENCED_OFF, _KILLED) or poison_of(history, ended)):
            continue
        yield f"{ended.process} exited with {ended.code}, and nobody had asked it to"


def poison_of(history: History, ended: Exit) -> str | None:
    """The run that ended this worker. A task says so before it does it."""
    if ended.code != POISONED:
        return None
    incarnations = set(history.workers.get(ended.process, ()))
    for line in history.lines:
        if line.what == "poison" and line.at <= ended.at <= history.after(line.at, _SOON):
            for event in history.runs.get(line.run, ()):
                if event.new.get("attempt") == line.attempt and event.new.get("worker_id") in incarnations:
                    return line.run
    return None


def l8_drains_in_time(history: History) -> Iterator[str]:
    lost = {event.new["worker_id"] for event in history.of("attempts") if event.new["outcome"] == "LOST"}
    for ended in history.exits:
        if ended.asked_at is None or not ended.ready:
            continue
        if (ended.code == _KILLED and _killed(history, ended)) or poison_of(history, ended):
            continue
        stopped = _stopped(history, ended)
        took = ended.at - ended.asked_at - stopped
        if ended.code != 0 and not (stopped and ended.role == "worker" and ended.code in (_FENCED_OFF, _KILLED)):
            yield f"{ended.process} was asked to stop and exited with {ended.code}"
        if ended.at > history.after(ended.asked_at + stopped, _DRAIN[ended.role]):
            yield f"{ended.process} took {took:.1f} s to stop"
        left = lost & set(history.workers.get(ended.process, ()))
        if left and ended.code == 0 and not _hindered(history, ended):
            yield f"{ended.process} drained, and runs had to be rescued from it"


def _killed(history: History, ended: Exit) -> bool:
    """Whether another fault killed it while it drained, or in the moment before it was asked to. A process is also
    killed to be started again with another clock; that fault names the seat and not the process."""
    assert ended.asked_at is not None
    seat = ended.process.rpartition(".")[0]
    return any(
        fault.begin <= ended.at and fault.end >= ended.asked_at - _MOMENT
        for fault in history.injections
        if fault.name == "kill -9 all"
        or (fault.name.startswith("kill -9") and fault.target == ended.process)
        or (fault.name == "one clock an hour off" and fault.target.partition(",")[0] == seat)
    )


def _stopped(history: History, ended: Exit) -> float:
    """How long it was stopped (SIGSTOP) after it had been asked to end."""
    assert ended.asked_at is not None
    return sum(
        max(0.0, min(fault.end, ended.at) - max(fault.begin, ended.asked_at))
        for fault in history.injections
        if fault.name.startswith("SIGSTOP") and fault.target == ended.process
    )


def _hindered(history: History, ended: Exit) -> bool:
    """Whether another fault may have prevented it from signing off."""
    assert ended.asked_at is not None
    return any(
        fault.begin <= ended.at and fault.end >= ended.asked_at - 5.0
        for fault in history.injections
        if not fault.name.startswith(("SIGTERM", "one clock right"))
    )


def _submits(history: History) -> list[Call]:
    return [call for call in history.calls if call.verb == "submit"]
