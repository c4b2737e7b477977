"""Histories with one violation each, and the rule that must find it."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster.history import CANCELLED, CANCELLED_JOB, FAILED, PAUSED_JOB, QUEUED, Injection, Row, StoredLog
from tests.cluster.story import Story, time_of
from tests.cluster.tasks import POISONED


def second_generation(story: Story, at: float) -> None:
    following = time_of(int(at) + 1)
    story.change(at, status=1, generation=2, created_at=time_of(at), next_fire_at=following, last_fired_for=None)


def a_generation_beside_a_live_run(story: Story) -> None:
    story.fire(4.01, 4)
    story.change(4.02, status=CANCELLED_JOB, next_fire_at=None)
    second_generation(story, 4.1)


def a_generation_of_a_job_that_has_not_ended(story: Story) -> None:
    second_generation(story, 3.5)


def two_generations_at_once(story: Story) -> None:
    story.change(3.5, status=CANCELLED_JOB, next_fire_at=None)
    second_generation(story, 3.6)
    story.change(3.7, status=CANCELLED_JOB, next_fire_at=None)
    story.change(3.8, status=1, generation=4, next_fire_at=time_of(4), last_fired_for=None)


def an_acknowledged_generation_that_is_nowhere(story: Story) -> None:
    story.call("submit", 3.5, body={"job_id": "tick"}, job_id="tick", generation=2)


def a_key_that_made_two_generations(story: Story) -> None:
    for generation in (1, 2):
        story.call("submit", 3.5, body={"idempotency_key": "k"}, job_id="tick", generation=generation)


def a_resume_that_forgets_what_a_cancel_kept_back(story: Story) -> None:
    story.change(3.5, status=CANCELLED_JOB, next_fire_at=None)
    story.change(6.4, status=1, next_fire_at=time_of(7))


def paused(story: Story) -> Story:
    """Nothing is due any more."""
    story.change(3.5, status=PAUSED_JOB, next_fire_at=None, paused_from=time_of(4))
    return story


def two_runs_for_one_second(story: Story) -> None:
    again = story.created(3) | {"run_id": "run-3-again"}
    story.write(3.3, "node", ("runs", "I", {}, again), ("run_history", "I", {}, again | {"state": 13}))


def a_run_for_a_time_that_is_none(story: Story) -> None:
    story.job["schedule"] = {"kind": "CRON", "cron": "*/2 * * * * *"}
    story.whole_life(5)


def a_run_after_an_acknowledged_pause(story: Story) -> None:
    story.call("pause", 3.2)
    story.whole_life(4)


def a_fire_under_an_old_epoch(story: Story) -> None:
    story.node("other")
    story.grant(3.2, "other")
    story.whole_life(4)


def a_grant_without_a_new_epoch(story: Story) -> None:
    story.grant(3.2, "other", epoch=1)


def a_second_end(story: Story) -> None:
    story.end(3.3, "run-3", FAILED)


def a_claim_of_a_running_run(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.step(4.03, run, fence=2, worker_id="id of another")


def a_success_before_its_attempt_ended(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.lines(run, 1, start=4.03, end=5.0)
    story.end(4.1, run)


def two_attempts_at_once(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.requeue(4.1, run)
    story.claim(4.2, run)
    story.lines(run, 1, start=4.03, tick=4.9)
    story.lines(run, 2, start=4.3, end=4.95)
    story.end(5.0, run)


def two_attempts_of_an_at_most_once_job(story: Story) -> None:
    run = story.fire(4.01, 4, spec={"delivery": "at_most_once"})
    story.claim(4.02, run)
    story.lines(run, 1, start=4.03)
    story.requeue(4.1, run)
    story.claim(4.2, run)
    story.lines(run, 2, start=4.3, end=4.4)
    story.end(4.5, run)


def an_attempt_that_begins_twice(story: Story) -> None:
    """It was handed back although it had started, so the next one has its number."""
    run = story.fire(4.01, 4, spec={"delivery": "at_most_once"})
    story.claim(4.02, run)
    story.lines(run, 1, start=4.03)
    story.requeue(4.1, run)
    story.step(4.11, run, attempt=0)
    story.claim(4.2, run)
    story.lines(run, 1, start=4.3, end=4.4)
    story.end(4.5, run)


def a_loss_that_uses_an_attempt(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.requeue(4.1, run, lost=True)
    story.step(4.11, run, max_attempts=4)


def a_run_that_fails_by_its_first_loss(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.end(4.1, run, FAILED, error="worker lost", reason="lost once, max_losses is 3", losses=1)


def a_snooze_that_uses_an_attempt(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    entry = {"run_id": run, "attempt": 1, "worker_id": "id of worker", "outcome": "SNOOZED"}
    story.write(4.1, "server", ("attempts", "I", {}, entry))
    story.step(4.1, run, state=QUEUED, fence=2, worker_id=None, snoozes=1)


def a_snooze_that_nobody_recorded(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.step(4.1, run, state=QUEUED, fence=2, worker_id=None, snoozes=1, max_attempts=5)


def losses_that_nobody_recorded(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.end(4.1, run, FAILED, error="no", reason="failed 4 times, no tries left", losses=3)


def two_jobs_for_one_key(story: Story) -> None:
    for job in ("one", "two"):
        story.write(0.2, "server", ("runs", "I", {}, story.created(0) | {"run_id": job, "job_id": None}))
        story.call("submit", 0.3, body={"idempotency_key": "k"}, job_id=job)


def two_runs_for_one_key_of_run_now(story: Story) -> None:
    for run in ("one", "two"):
        story.write(0.2, "server", ("runs", "I", {}, story.created(0) | {"run_id": run, "trigger": f"manual:{run}"}))
        story.call("runNow", 0.3, body={"idempotency_key": "k"}, run_id=run)


def an_acknowledged_run_that_is_nowhere(story: Story) -> None:
    story.call("runNow", 0.3, body={"idempotency_key": "k"}, run_id="nowhere")


def two_retries_of_one_run(story: Story) -> None:
    run = story.fire(4.01, 4)
    for number in (1, 2):
        again = {"run_id": f"again-{number}", "trigger": f"replay:{run}"}
        story.write(4.2, "server", ("runs", "I", {}, story.created(4) | again))


def an_acknowledged_job_that_is_nowhere(story: Story) -> None:
    story.call("submit", 0.3, body={"idempotency_key": "k"}, job_id="nowhere")


def a_refused_job_that_is_there(story: Story) -> None:
    story.write(
        0.2, "server", ("runs", "I", {}, story.created(0) | {"run_id": "r", "job_id": None, "name": "refused-1"})
    )
    story.call("submit", 0.3, "refused", body={"name": "refused-1"})


def an_acknowledged_delete_that_is_forgotten(story: Story) -> None:
    story.call("cancel", 3.3)


def a_claim_after_an_acknowledged_cancel(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.call("cancel", 4.1)
    story.claim(4.2, run)


def a_cancelled_run_whose_child_lives_on(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.lines(run, 1, start=4.03, tick=4.9)
    story.step(4.2, run, cancel_requested_at=time_of(4.2))
    story.end(4.3, run, CANCELLED)


def a_family_that_outlives_its_run(story: Story) -> None:
    run = story.fire(4.01, 4, name="family")
    story.claim(4.02, run)
    story.lines(run, 1, start=4.03, end=4.1, tick=4.9)
    story.end(4.2, run)


def a_log(story: Story, text: str, *, name: str = "prints-3", truncated: bool = False, counted: int = 0) -> None:
    run = story.fire(4.01, 4, name=name)
    story.claim(4.02, run)
    story.lines(run, 1, start=4.03, end=4.1)
    story.end(4.2, run)
    story.history.logs.append(StoredLog(run, 1, text, truncated, counted or len(text)))


def a_log_with_a_hole(story: Story) -> None:
    a_log(story, "run-4 1 0\nrun-4 1 2\n")


def a_log_that_ends_early_without_a_mark(story: Story) -> None:
    a_log(story, "run-4 1 0\n")


def a_log_of_another_attempt(story: Story) -> None:
    a_log(story, "run-4 2 0\nrun-4 2 1\nrun-4 2 2\n")


def a_truncated_log_that_does_not_say_so(story: Story) -> None:
    a_log(story, "run-4 1 0\n", name="prints-3-cap-10", truncated=True)


def a_log_beyond_its_cap(story: Story) -> None:
    a_log(story, "run-4 1 0\nrun-4 1 1\nrun-4 1 2\n", name="prints-3-cap-10")


def a_late_fire(story: Story) -> None:
    run = story.fire(9.9, 4)
    story.claim(9.95, run)
    story.lines(run, 1, start=9.96, end=9.97)
    story.end(9.98, run)


def a_second_that_is_neither_run_nor_missed(story: Story) -> None:
    story.fire(5.01, 5)


def a_late_fire_under_the_policy_skip(story: Story) -> None:
    story.change(3.4, spec={"misfire": {"policy": "skip"}})
    story.history.injections.append(Injection("all dead", "all", 3.5, 20.0, whole=True))
    missed = {"job_id": "tick", "first_at": time_of(5), "last_at": time_of(12), "count": 8, "reason": "late"}
    story.fire(12.5, 4, through=12)
    story.write(12.6, "node", ("missed_fires", "I", {}, missed))


EVEN = {"kind": "CRON", "cron": "*/2 * * * * *"}


def a_change_that_swallows_a_fire(story: Story) -> None:
    story.change(4.02, schedule=EVEN, next_fire_at=time_of(6))


def a_change_of_something_else_before_a_fire_that_is_due(story: Story) -> None:
    story.change(4.02, name="tock")


def a_change_that_leaves_out_a_fire_of_the_new_schedule(story: Story) -> None:
    story.change(3.5, schedule=EVEN, next_fire_at=time_of(6))


def a_pause_that_swallows_a_fire(story: Story) -> None:
    story.change(4.02, status=PAUSED_JOB, next_fire_at=None, paused_from=time_of(5))


def a_change_in_a_pause_that_swallows_its_fires(story: Story) -> None:
    story.change(3.5, status=PAUSED_JOB, next_fire_at=None, paused_from=time_of(4))
    story.change(5.5, schedule=EVEN, paused_from=time_of(6))


def a_delete_that_swallows_a_fire(story: Story) -> None:
    story.change(4.02, status=CANCELLED_JOB, next_fire_at=None)


def a_delete_in_a_pause_that_swallows_its_fires(story: Story) -> None:
    story.change(3.5, status=PAUSED_JOB, next_fire_at=None, paused_from=time_of(4))
    story.change(5.5, status=CANCELLED_JOB, paused_from=None)


def a_delete_of_a_job_that_nobody_fired(story: Story) -> None:
    story.change(20.5, story.missed(4, 20, "deleted"), status=CANCELLED_JOB, next_fire_at=None)


def a_fire_by_a_server_that_changes_nothing(story: Story) -> None:
    story.fire(4.01, 4, process="server")


def runs_left_with_the_dead(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.exit("worker", "worker", 4.5)
    story.requeue(20.0, run)


def shards_left_with_the_dead(story: Story) -> None:
    story.exit("node", "scheduler", 4.5)
    story.node("other")
    story.write(20.0, "server", ("nodes", "I", {}, {"node_id": "late"}))


def a_run_that_is_left_over(story: Story) -> None:
    story.history.live_runs.append(story.created(3) | {"state": 2, "worker_id": "id of worker"})


def a_server_that_ends_by_itself(story: Story) -> None:
    story.exit("server", "server", 4.5, code=1, wanted=False)


def a_rescue_of_the_living(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.lines(run, 1, start=4.03, tick=5.5)
    story.requeue(5.0, run, lost=True)


def a_poisoned_worker(story: Story, run: str, at: float, worker: str = "worker") -> None:
    """A task ends its worker; the run is lost with it."""
    story.claim(at, run, worker)
    attempt = story.runs[run]["attempt"]
    story.lines(run, attempt, start=at + 0.01, poison=at + 0.1)
    story.exit(worker, "worker", at + 0.2, code=POISONED, wanted=False)
    story.requeue(at + 0.5, run, lost=True)


def blamed(story: Story, at: float, run: str, losses: int, *others: str) -> None:
    """A rescue ends the run because it was alone, and takes others from the worker in the same transaction."""
    old = story.runs[run]
    reason = f"lost {losses} times, the last time while it was alone on its worker (killed by SIGKILL); see whether"
    end = old | {"state": FAILED, "error": "worker lost", "reason": reason, "losses": losses}
    taken = [("runs", "U", story.runs[other], requeued(story.runs[other])) for other in others]
    lost = [("attempts", "I", {}, lost_attempt(story.runs[other])) for other in others]
    story.write(at, "server", *taken, *lost, ("runs", "D", old, {}), ("run_history", "I", {}, end))
    story.runs.update((other, requeued(story.runs[other])) for other in others)


def lost_attempt(row: Row) -> Row:
    return {name: row[name] for name in ("run_id", "attempt", "worker_id")} | {"outcome": "LOST"}


def requeued(row: Row) -> Row:
    more = {name: row[name] + 1 for name in ("fence", "losses", "max_attempts")}
    return row | more | {"state": QUEUED, "worker_id": None}


def a_run_that_is_blamed_for_its_first_loss(story: Story) -> None:
    run = story.fire(4.01, 4)
    story.claim(4.02, run)
    story.exit("worker", "worker", 4.05)
    blamed(story, 4.1, run, 1)


def a_run_that_is_blamed_for_its_neighbour(story: Story) -> None:
    run, other = story.fire(4.01, 4), story.fire(5.01, 5)
    story.claim(5.02, run)
    story.exit("worker", "worker", 5.05)
    story.requeue(5.1, run, lost=True)
    story.worker("second")
    for each in (run, other):
        story.claim(6.0, each, "second")
    story.exit("second", "worker", 6.05)
    blamed(story, 6.1, run, 2, other)


def a_run_that_ends_a_second_worker(story: Story) -> None:
    story.worker("second")
    run = story.fire(4.01, 4)
    a_poisoned_worker(story, run, 4.02)
    a_poisoned_worker(story, run, 5.0, "second")


def a_worker_that_ends_without_a_poison_of_its_own(story: Story) -> None:
    """Another worker had the task."""
    story.worker("second")
    run = story.fire(4.01, 4)
    a_poisoned_worker(story, run, 4.02)
    story.exit("second", "worker", 4.3, code=POISONED, wanted=False)


def a_drain_that_takes_for_ever(story: Story) -> None:
    story.exit("node", "scheduler", 100.0, code=0, asked_at=4.5)


WRONGS: list[tuple[str, Callable[[Story], None]]] = [
    ("S1", two_runs_for_one_second),
    ("S1", a_generation_beside_a_live_run),
    ("S1", a_generation_of_a_job_that_has_not_ended),
    ("S1", two_generations_at_once),
    ("S2", a_run_for_a_time_that_is_none),
    ("S2", a_run_after_an_acknowledged_pause),
    ("S3", a_fire_under_an_old_epoch),
    ("S3", a_grant_without_a_new_epoch),
    ("S4", a_second_end),
    ("S4", a_claim_of_a_running_run),
    ("S5", a_success_before_its_attempt_ended),
    ("S6", two_attempts_at_once),
    ("S6", two_attempts_of_an_at_most_once_job),
    ("S6", an_attempt_that_begins_twice),
    ("S14", a_loss_that_uses_an_attempt),
    ("S14", a_run_that_fails_by_its_first_loss),
    ("S14", losses_that_nobody_recorded),
    ("S14", a_snooze_that_uses_an_attempt),
    ("S14", a_snooze_that_nobody_recorded),
    ("S14", a_run_that_ends_a_second_worker),
    ("S14", a_run_that_is_blamed_for_its_first_loss),
    ("S14", a_run_that_is_blamed_for_its_neighbour),
    ("S7", two_jobs_for_one_key),
    ("S7", two_runs_for_one_key_of_run_now),
    ("S7", an_acknowledged_run_that_is_nowhere),
    ("S7", two_retries_of_one_run),
    ("S7", a_key_that_made_two_generations),
    ("S8", an_acknowledged_generation_that_is_nowhere),
    ("S8", an_acknowledged_job_that_is_nowhere),
    ("S8", a_refused_job_that_is_there),
    ("S8", an_acknowledged_delete_that_is_forgotten),
    ("S11", a_claim_after_an_acknowledged_cancel),
    ("S11", a_cancelled_run_whose_child_lives_on),
    ("S11", a_family_that_outlives_its_run),
    ("S12", a_log_with_a_hole),
    ("S12", a_log_that_ends_early_without_a_mark),
    ("S12", a_log_of_another_attempt),
    ("S12", a_truncated_log_that_does_not_say_so),
    ("S12", a_log_beyond_its_cap),
    ("L1", a_late_fire),
    ("L2", a_second_that_is_neither_run_nor_missed),
    ("L2", a_late_fire_under_the_policy_skip),
    ("S3", a_fire_by_a_server_that_changes_nothing),
    ("L1", a_delete_of_a_job_that_nobody_fired),
    ("L2", a_change_that_swallows_a_fire),
    ("L2", a_change_of_something_else_before_a_fire_that_is_due),
    ("L2", a_change_that_leaves_out_a_fire_of_the_new_schedule),
    ("L2", a_pause_that_swallows_a_fire),
    ("L2", a_change_in_a_pause_that_swallows_its_fires),
    ("L2", a_delete_that_swallows_a_fire),
    ("L2", a_resume_that_forgets_what_a_cancel_kept_back),
    ("L2", a_delete_in_a_pause_that_swallows_its_fires),
    ("L3", runs_left_with_the_dead),
    ("L4", shards_left_with_the_dead),
    ("L5", a_run_that_is_left_over),
    ("L6", a_server_that_ends_by_itself),
    ("L6", a_worker_that_ends_without_a_poison_of_its_own),
    ("L7", a_rescue_of_the_living),
    ("L8", a_drain_that_takes_for_ever),
]
