"""The rules for unique jobs. The load gives each key a name of its own, and every job with it has that name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.cluster.history import RUNNING, Event, History
from tests.cluster.load_limits import KEPT, LATER, LATER_FOR, REPLACED

_SAME_MOMENT = 1.0  # second between the time of a submission at its server and that of its row
_AHEAD = float("inf")


def s7_one_live_job_per_unique_key(history: History) -> Iterator[str]:
    """A job is created only when the one before has ended, or, if its key says so, has been claimed.

    Submissions lock the key, so the audit has them in their order, and each sees what those before it created. Claims,
    hand-backs and ends do not lock it. So a job is wrong only if the one before visibly had the key all the time from
    the begin of its transaction to its write."""
    holder: dict[str, str] = {}
    for event in history.of("runs"):
        run, name = event.row["run_id"], str(event.row["name"])
        if event.op != "I" or not name.startswith((KEPT, REPLACED)) or event.row["trigger"] is not None:
            continue  # runs that are created by hand do not ask for the key
        if (before := holder.get(name)) is not None:
            for since, until, state in _having(history, before, while_running=name.startswith(KEPT)):
                if since <= event.began and event.at <= until:
                    yield f"{name}: {run} was created while {before} had the key, in state {state}"
                    break
        holder[name] = run


def _having(history: History, run: str, *, while_running: bool) -> Iterator[tuple[float, float, int]]:
    """The periods in which everybody saw that the run had its key, and its state in the beginning of each."""
    period: tuple[float, int] | None = None
    for event in history.runs[run]:
        if event.table != "runs":
            continue
        has = event.op != "D" and (while_running or event.new["state"] != RUNNING)
        if has and period is None:
            since = -_AHEAD if event.op == "I" else history.seen_by_all(event)
            period = since, event.new["state"]
        elif not has and period is not None:
            yield period[0], event.visible, period[1]
            period = None
    if period is not None:
        yield period[0], _AHEAD, period[1]


def s7_a_merged_submission_names_a_job_that_lived(history: History) -> Iterator[str]:
    """What was merged counts as acknowledged: the job that it was merged into was alive at that time."""
    sent: dict[str, float] = defaultdict(lambda: float("inf"))
    for call in history.calls:
        key = str(call.body.get("idempotency_key"))
        sent[key] = min(sent[key], call.began)
        if call.verb != "submit" or call.result != "ok" or call.answer.get("unique") is None:
            continue
        job = call.answer["job_id"]
        life = sorted([*history.jobs.get(job, []), *history.runs.get(job, [])], key=lambda event: event.seq)
        if not life or life[0].at > call.ended or _over(history, life) < sent[key]:
            yield f"{key} was {call.answer['unique']} with {call.answer['job_id']}, which did not live then"


def s7_one_waiting_job_per_later_key(history: History) -> Iterator[str]:
    """A submission pushes the job that waits for its time, and creates none beside it, until its key ends, `for` after
    the first submission: a job may wait longer if nobody fires it. The time never becomes earlier, and ends with the
    key."""
    waiting: dict[str, set[str]] = defaultdict(set)
    latest: dict[str, float] = {}
    created: dict[str, float] = {}
    for event in history.of("jobs"):
        job, name = event.row["job_id"], str(event.row["name"])
        if not name.startswith(LATER):
            continue
        if event.op == "D":
            waiting[name].discard(job)
            continue
        if event.op == "I":
            if held := sorted(other for other in waiting[name] if event.at < latest[other]):
                yield f"{name}: {job} was created while {held} waited for its time"
            waiting[name].add(job)
            latest[job] = event.began + LATER_FOR  # it took the key after it began, and before it wrote the job
            created[job] = history.moment(event.new["created_at"])
        before, after = event.old.get("next_fire_at"), event.new.get("next_fire_at")
        if after is None:
            waiting[name].discard(job)
        elif before is not None and history.moment(after) < history.moment(before):
            yield f"{name}: the time of {job} became earlier, from {before} to {after}"
        elif history.moment(after) > created.get(job, _AHEAD) + LATER_FOR + _SAME_MOMENT:
            yield f"{name}: the time of {job} is {after}, later than `for` after its submission"


def _over(history: History, life: list[Event]) -> float:
    """When everybody saw that the job or its run was gone. A job that fires becomes a run in the same transaction."""
    gone = {event.table: history.seen_by_all(event) for event in life if event.op == "D"}
    return gone.get("runs" if any(event.table == "runs" for event in life) else "jobs", _AHEAD)
