"""The rules for firing: one run per fire time, no extra fires, one owner at a time, on time, none forgotten."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.cluster.history import (
    CANCELLED_JOB,
    COMPLETED_JOB,
    PAUSED_JOB,
    SCHEDULED_JOB,
    SKIPPED,
    TTL,
    Event,
    History,
    Row,
)
from tests.cluster.oracle import fires_between, first_after, nominal_of, parse

ON_TIME = TTL + 2.0
_A_ROUND = 1.0  # between lease rounds
_LATE = timedelta(seconds=ON_TIME)
_RECURRING = ("CRON", "INTERVAL", "RRULE")
_OFF = (PAUSED_JOB, CANCELLED_JOB)
UNKNOWN_FOR = 40.0  # no statement takes longer
# A submission goes by the server's estimate of the database's time, which may be off by half of a round trip.
_ESTIMATE_ERROR = timedelta(seconds=0.5)


def s1_one_run_per_fire_time(history: History) -> Iterator[str]:
    identities = Counter(
        (_job_of(birth.new), generation_of(birth.new), birth.new["trigger"], birth.new["scheduled_for"])
        for birth in history.births
    )
    for (job, generation, trigger, moment), count in identities.items():
        if count > 1:
            yield f"job {job}, generation {generation}: {count} runs for {moment} (trigger {trigger or 'schedule'})"
    for run, count in Counter(birth.new["run_id"] for birth in history.births).items():
        if count > 1:
            yield f"run {run} was born {count} times"
    yield from _generations_follow_each_other(history)


def _generations_follow_each_other(history: History) -> Iterator[str]:
    """A generation begins when the one before has ended, with all its runs. Their numbers have no gap."""
    newest: dict[str, int] = defaultdict(lambda: 1)
    live: dict[str, set[str]] = defaultdict(set)
    for event in history.events:
        if event.table not in ("jobs", "runs"):
            continue
        job, generation = _job_of(event.row) if event.table == "runs" else event.row["job_id"], generation_of(event.row)
        if generation > newest[job]:
            if generation != newest[job] + 1:
                yield f"{job}: generation {generation} follows {newest[job]}"
            if live[job]:
                yield f"{job}: generation {generation} begins while {sorted(live[job])} live"
            if event.table == "jobs" and event.op == "U" and event.old["status"] not in (CANCELLED_JOB, COMPLETED_JOB):
                yield f"{job}: generation {generation} replaces a job with status {event.old['status']}"
            newest[job] = generation
        elif event.table == "jobs" and generation < newest[job] and event.op != "D":
            yield f"{job}: generation {generation} was written after {newest[job]}"
        if event.table == "runs" and event.op == "I":
            live[job].add(event.new["run_id"])
        elif event.table == "runs" and event.op == "D":
            live[job].discard(event.old["run_id"])


def s2_no_phantom_fire(history: History) -> Iterator[str]:
    for birth in history.births:
        if birth.new["trigger"] not in (None, "at"):
            continue
        job, moment = _job_of(birth.new), parse(birth.new["scheduled_for"])
        if _is_immediate(history, birth):
            continue
        definition = definition_fired(history, birth, job)
        if definition is None:
            yield f"run {birth.new['run_id']} of {job} was born for {moment}, and its job did not move on with it"
        elif definition["status"] != SCHEDULED_JOB:
            yield f"{job} fired for {moment} with status {definition['status']}"
        elif not fires_between(definition["schedule"], moment, moment):
            yield f"{job} fired for {moment}, which is no fire time of {definition['schedule']}"
    yield from _fires_while_off(history)


def definition_fired(history: History, birth: Event, job: str) -> Row | None:
    """The job's definition when this run was created."""
    for event in history.by_tx[birth.tx]:
        if event.table == "jobs" and event.old.get("job_id") == job and (event.op == "D" or is_fire(event)):
            return event.old
    return None


def _fires_while_off(history: History) -> Iterator[str]:
    """No run is created between the response to a pause or delete and the next resume or create."""
    births = defaultdict(list)
    for birth in history.births:
        if birth.new["trigger"] in (None, "at"):
            births[_job_of(birth.new)].append(birth)
    for call in history.calls:
        if call.verb not in ("pause", "cancel") or call.result != "ok":
            continue
        resumes = [
            other
            for other in history.calls
            if other.verb in ("resume", "submit") and other.target == call.target and other.result != "refused"
        ]
        unknown = [other.began for other in resumes if other.result == "unknown"]
        if any(began < call.ended < history.after(began, UNKNOWN_FOR) for began in unknown):
            continue  # a resume without a response may still be pending
        until = min((other.began for other in resumes if other.began > call.began), default=float("inf"))
        for birth in births[call.target]:
            if call.ended < birth.at < until:
                after, moment = birth.at - call.ended, birth.new["scheduled_for"]
                yield f"{call.target} fired for {moment}, {after:.3f} s after its {call.verb} was acknowledged"


def s3_epochs_rise_and_fence(history: History) -> Iterator[str]:
    """A node writes with the epoch of its last grant. Nobody writes with it after a later grant. A server fires without
    a lease, but only what is due when it changes the job."""
    granted: dict[int, tuple[int, str]] = {}
    known: dict[tuple[str, int], int] = {}
    for event in history.events:
        if event.table == "shard_leases":
            shard, old, new = event.new["shard"], event.old, event.new
            if new["epoch"] < old["epoch"]:
                yield f"shard {shard}: epoch {new['epoch']} after {old['epoch']}"
            taken = new["owner"] is not None and new["owner"] != old["owner"]
            if taken and new["epoch"] <= old["epoch"]:
                yield f"shard {shard} went to {event.process} without a new epoch"
            if taken or new["epoch"] > old["epoch"]:
                granted[shard] = (new["epoch"], event.process)
                known[event.process, shard] = new["epoch"]
        elif _is_fire_of_a_change(history, event):
            continue
        elif event.table == "jobs" and (is_fire(event) or _is_one_time_fire(event)):
            shard = event.old["shard"]
            newest, owner = granted.get(shard, (0, "nobody"))
            under = known.get((event.process, shard), 0)
            if under < newest:
                yield (
                    f"{event.process} fired {event.old['job_id']} of shard {shard} under epoch {under}, "
                    f"after {owner} was granted epoch {newest}: at {event.wall}"
                )


def l1_fires_on_time(history: History) -> Iterator[str]:
    for birth in history.births:
        if birth.new["trigger"] not in (None, "at") or _is_immediate(history, birth):
            continue
        job = _job_of(birth.new)
        due = max(history.moment(birth.new["scheduled_for"]), _known_since(history, job, birth))
        if birth.at > history.deadline(due, ON_TIME):
            yield f"{job}: the run for {birth.new['scheduled_for']} came {birth.at - due:.1f} s late"
    for event in history.of("missed_fires"):
        row = event.new
        if _was_scheduled(history, event):
            if event.at > history.deadline(history.moment(row["first_at"]), ON_TIME):
                yield f"{row['job_id']} was due since {row['first_at']} when it was changed ({row['reason']})"
            continue
        if row["reason"] in ("paused", "cancelled"):
            continue
        last = history.moment(row["last_at"])
        if event.at > history.deadline(last, ON_TIME):
            yield f"{row['job_id']}: {row['count']} fire(s) up to {row['last_at']} missed, and no fault explains it"
    yield from _still_due(history)


def _was_scheduled(history: History, missed: Event) -> bool:
    """Whether a pause or a delete of a scheduled job recorded this as missed."""
    return any(
        is_change(event)
        and event.old["job_id"] == missed.new["job_id"]
        and event.old["status"] == SCHEDULED_JOB
        and event.new["status"] in (PAUSED_JOB, CANCELLED_JOB)
        for event in history.by_tx[missed.tx]
    )


def _still_due(history: History) -> Iterator[str]:
    end = max((event.at for event in history.events), default=0.0)
    for job, events in history.jobs.items():
        last = events[-1]
        if last.op == "D" or last.new["next_fire_at"] is None:
            continue
        due = max(history.moment(last.new["next_fire_at"]), last.at)
        if history.deadline(due, ON_TIME) < end:
            yield f"{job} has been due since {last.new['next_fire_at']} and never fired"


def _known_since(history: History, job: str, birth: Event) -> float:
    """When the definition that fired was written. A job that is submitted, changed or resumed late cannot fire
    before."""
    written = [event.at for event in history.jobs[job] if event.seq < birth.seq and not is_fire(event) and event.new]
    return written[-1] if written else 0.0


def l2_runs_and_missed_are_all_fires(history: History) -> Iterator[str]:
    for job, events in history.jobs.items():
        for event in events:
            if event.op == "I" or begins_generation(event):
                # A submission that takes long is stored after its first fire, which is then late.
                moments = [event.new["created_at"], event.new["next_fire_at"] or event.new["created_at"]]
                yield from _next_is(job, event.new, min(map(parse, moments)), _ESTIMATE_ERROR)
            elif event.op == "U" and is_fire(event):
                yield from _fire_is_exact(history, job, event)
            elif event.op == "U" and event.new["status"] == SCHEDULED_JOB and event.old["status"] in _OFF:
                yield from _resume_is_exact(history, job, event)
            elif is_change(event):
                yield from _change_is_exact(history, job, event)


def _change_is_exact(history: History, job: str, event: Event) -> Iterator[str]:
    """What was due until the change is fired before it, or missed with it. Then the new definition is in force."""
    old, new = event.old, event.new
    cut, since = parse(new["updated_at"]), old["next_fire_at"] or old["paused_from"]
    if "calendar" in new["schedule"] and new["updated_at"] == old["updated_at"]:  # its next fire follows a change of it
        cut = event.wall - timedelta(seconds=event.at - event.began)
    if since is not None and not _still_held_back(old, new) and not _pushed(old, new):
        due, missed = fires_between(old["schedule"], parse(since), cut), _missed_with(history, job, event)
        if new["status"] in (PAUSED_JOB, CANCELLED_JOB) and missed != due:
            yield f"{job}: changed at {cut} with {_short(missed)} missed, of {_short(due)}"
        elif new["status"] not in (PAUSED_JOB, CANCELLED_JOB) and due:
            yield f"{job}: the change at {cut} swallowed {_short(due)}"
    after = max(cut, parse(new["last_fired_for"])) if new["last_fired_for"] else cut
    if new["schedule"] != old["schedule"] or new["status"] != old["status"]:
        yield from _next_is(job, new, after)


def _still_held_back(old: Row, new: Row) -> bool:
    """A pause goes on, or begins before the fire of a one-time job, which then waits for the end of the pause."""
    if new["status"] != PAUSED_JOB or new["schedule"] != old["schedule"]:
        return False
    return old["status"] == PAUSED_JOB or new["schedule"]["kind"] == "FUTURE"


def _pushed(old: Row, new: Row) -> bool:
    """A submission has given a unique job a later time. The job runs once, also if it was due and had not fired."""
    rule = (new["spec"] or {}).get("unique") or {}
    moments = old["next_fire_at"], new["next_fire_at"]
    if rule.get("else") != "later" or not new["one_time"] or new["status"] != old["status"] or None in moments:
        return False
    return parse(moments[0]) < parse(moments[1])


def _missed_with(history: History, job: str, event: Event) -> list[datetime]:
    found: list[datetime] = []
    for other in history.by_tx[event.tx]:
        if other.table == "missed_fires" and other.new["job_id"] == job:
            found += fires_between(event.old["schedule"], parse(other.new["first_at"]), parse(other.new["last_at"]))
    return found


def _next_is(job: str, row: Row, after: datetime, error: timedelta = timedelta(0)) -> Iterator[str]:
    """`error`: how far the product's time may have been ahead of `after`."""
    schedule, found = row["schedule"], row["next_fire_at"] or row["paused_from"]
    if schedule["kind"] not in _RECURRING or found is None:
        return
    # `after` is close to the time that the product used. Its next fire must be one of the two fires around it.
    # A fire with jitter does not count if its nominal time is before: the job did not exist then, or has dealt with it.
    fires = fires_between(schedule, after - timedelta(seconds=1), parse(found))
    coming = [fire for fire in fires if fire > after + error and nominal_of(schedule, fire) > after + error]
    if not fires or fires[-1] != parse(found) or len(coming) > 1:
        yield f"{job}: next fire {found} does not follow {after} by {schedule}"


def _fire_is_exact(history: History, job: str, event: Event) -> Iterator[str]:
    """The runs and misses of one fire are the oracle's fires from the old next fire to `through`."""
    old, new = event.old, event.new
    if old["next_fire_at"] is None:
        yield f"{job} fired for {new['last_fired_for']}, and nothing was due"
        return
    through = parse(new["last_fired_for"])
    expected = _not_dealt_with(old, fires_between(old["schedule"], parse(old["next_fire_at"]), through))
    ran, skipped, missed = [], [], []
    for other in history.by_tx[event.tx]:
        if other.op != "I" or other.new.get("job_id") != job:
            continue
        if other.table == "runs" and other.new["trigger"] is None:
            ran.append(parse(other.new["scheduled_for"]))
        elif other.table == "run_history" and other.new["state"] == SKIPPED:
            skipped.append(parse(other.new["scheduled_for"]))
        elif other.table == "missed_fires":
            found = fires_between(old["schedule"], parse(other.new["first_at"]), parse(other.new["last_at"]))
            if len(found) != other.new["count"]:
                yield f"{job}: a missed range says {other.new['count']} and holds {len(found)} fires"
            missed += found
    if sorted(ran + skipped + missed) != expected:
        yield f"{job}: ran {_short(ran)}, skipped {_short(skipped)}, missed {_short(missed)} of {_short(expected)}"
    if new["next_fire_at"] is not None and parse(new["next_fire_at"]) != first_after(old["schedule"], through):
        yield f"{job}: after {through} comes {new['next_fire_at']} by {old['schedule']}"
    yield from _policy_is_followed(job, old, sorted(ran + skipped), through)


def _not_dealt_with(row: Row, fires: list[datetime]) -> list[datetime]:
    """The fires of nominal times that have not run by another jitter."""
    if "jitter" not in row["schedule"] or row.get("last_nominal_for") is None:
        return fires
    last = parse(row["last_nominal_for"])
    return [fire for fire in fires if nominal_of(row["schedule"], fire) > last]


def _policy_is_followed(job: str, row: Row, wanted: list[datetime], through: datetime) -> Iterator[str]:
    """The plan was made between `through` and the next fire, which tells which fires were surely late or on time."""
    misfire = (row["spec"] or {}).get("misfire", {})
    policy, cap, grace = misfire.get("policy", "once"), misfire.get("cap", 100), misfire.get("grace")
    late = [moment for moment in wanted if through - moment > _LATE]
    surely_on_time = [
        moment for moment in wanted if (first_after(row["schedule"], through) or through) - moment <= _LATE
    ]
    if policy == "skip" and late:
        yield f"{job}: policy skip ran {_short(late)}, late at {through}"
    if policy == "once" and (len(late) > 1 or (late and surely_on_time)):
        yield f"{job}: policy once ran {_short(wanted)} at {through}"
    if policy == "all" and len(late) > cap:
        yield f"{job}: policy all ran {len(late)} late fires, its cap is {cap}"
    if grace is not None and any((through - moment).total_seconds() > grace for moment in late):
        yield f"{job}: ran {_short(late)} at {through}, its grace is {grace} s"


def _resume_is_exact(history: History, job: str, event: Event) -> Iterator[str]:
    since = event.old["paused_from"]
    if event.old["status"] == CANCELLED_JOB:  # nothing is recorded for the time of the cancel, except now
        last = event.old["last_fired_for"] or event.old["updated_at"]
        following = first_after(event.old["schedule"], max(parse(last), parse(event.old["updated_at"])))
        since = None if following is None else following.isoformat()
    if event.new["schedule"]["kind"] not in _RECURRING or since is None:
        return
    missed = _missed_with(history, job, event)
    following = parse(event.new["next_fire_at"])
    expected = fires_between(event.new["schedule"], parse(since), following)
    if [*missed, following] != expected:
        yield f"{job}: resumed with {_short(missed)} missed and {following} next, of {_short(expected)}"


def l4_shards_are_owned_again(history: History) -> Iterator[str]:
    """When a scheduler dies, its shards have another owner within 5 s."""
    deaths = {ended.process: ended.at for ended in history.exits if ended.role == "scheduler"}
    for process, at in deaths.items():
        node = history.nodes.get(process)
        for shard, owner in _owners_at(history, at).items():
            if owner != node or node is None:
                continue
            grants = [
                e.at for e in history.of("shard_leases") if e.new["shard"] == shard and e.at > at and e.new["owner"]
            ]
            deadline = history.deadline(at, ON_TIME)
            if min(grants, default=float("inf")) > deadline and history.events[-1].at > deadline:
                yield f"shard {shard} of {process}, dead since {at:.1f}, was not taken within {deadline - at:.1f} s"


def _owners_at(history: History, moment: float) -> dict[int, str | None]:
    owners: dict[int, str | None] = {}
    for event in history.of("shard_leases"):
        if event.at <= moment:
            owners[event.new["shard"]] = event.new["owner"]
    return owners


def is_fire(event: Event) -> bool:
    """A fire sets the next fire time and keeps the version. Every other change increases the version."""
    if event.op != "U" or event.table != "jobs" or event.process == "nobody":
        return False
    return event.old["version"] == event.new["version"] and event.old["last_fired_for"] != event.new["last_fired_for"]


def is_change(event: Event) -> bool:
    return event.table == "jobs" and event.op == "U" and event.new["version"] > event.old["version"]


def _is_fire_of_a_change(history: History, event: Event) -> bool:
    """A fire in the transaction that changes the job."""
    if event.table != "jobs" or event.process in history.nodes:
        return False
    changes = (other for other in history.by_tx[event.tx] if is_change(other))
    return is_fire(event) and any(other.old["job_id"] == event.old["job_id"] for other in changes)


def _is_one_time_fire(event: Event) -> bool:
    return event.op == "D" and event.old["status"] == SCHEDULED_JOB


def _is_immediate(history: History, birth: Event) -> bool:
    """The run of a job that was to run at once: nobody fired it. Such a job is not in jobs, but an earlier generation
    may have been."""
    new = birth.new
    return new["trigger"] is None and (_job_of(new) not in history.jobs or ("fired_at" in new and not new["fired_at"]))


def begins_generation(event: Event) -> bool:
    return event.op == "U" and generation_of(event.new) > generation_of(event.old)


def generation_of(row: Row) -> int:
    return int(row.get("generation", 1))


def _job_of(row: Row) -> str:
    return row["job_id"] if row["job_id"] is not None else row["run_id"]


def _short(moments: list[datetime]) -> str:
    texts = [f"{moment:%H:%M:%S}" for moment in moments]
    return f"[{', '.join(texts if len(texts) < 8 else [*texts[:3], '...', *texts[-3:]])}]"
