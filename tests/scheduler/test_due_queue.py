"""The order in which due jobs fire: that of the claim, and critical jobs never take a whole batch from the others."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.job import Priority
from mainspring.kernel.ids import DEFAULT_TENANT, TenantId
from mainspring.scheduler.due_queue import DueQueue
from mainspring.store.fires import DueJob

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def a_due_job(
    job_id: str, priority: Priority = Priority.NORMAL, due: datetime = NOON, tenant: TenantId = DEFAULT_TENANT
) -> DueJob:
    """Its lane has the number of its priority."""
    return DueJob(tenant, job_id, 1, 0, due, False, False, 0, "{}", None, lane_id=int(priority))


def a_queue(*due: DueJob) -> DueQueue:
    queue = DueQueue(Priority)
    queue.add(due)
    return queue


def ids(jobs: list[DueJob]) -> list[str]:
    return [job.job_id for job in jobs]


def test_critical_jobs_are_first_and_the_others_by_time_where_a_level_counts_five_minutes() -> None:
    queue = a_queue(
        a_due_job("low, long ago", Priority.LOW, NOON - 7 * MINUTE),
        a_due_job("normal"),
        a_due_job("high", Priority.HIGH, NOON + 4 * MINUTE),
        a_due_job("high, later", Priority.HIGH, NOON + 6 * MINUTE),
        a_due_job("critical", Priority.CRITICAL, NOON + 60 * MINUTE),
    )
    assert ids(queue.take(10)) == ["critical", "low, long ago", "high", "normal", "high, later"]
    assert len(queue) == 0


def test_what_comes_later_overtakes_what_waits() -> None:
    queue = a_queue(*(a_due_job(f"normal-{number}") for number in range(4)))
    assert ids(queue.take(2)) == ["normal-0", "normal-1"]
    queue.add([a_due_job("earlier", due=NOON - MINUTE), a_due_job("critical", Priority.CRITICAL)])
    assert ids(queue.take(3)) == ["critical", "earlier", "normal-2"]


def test_a_fifth_of_a_batch_is_left_to_those_that_are_not_critical() -> None:
    queue = a_queue(
        *(a_due_job(f"critical-{number}", Priority.CRITICAL) for number in range(30)),
        *(a_due_job(f"low-{number}", Priority.LOW) for number in range(3)),
    )
    assert [Counter(job.lane_id for job in queue.take(10)) for _ in range(4)] == [
        {Priority.CRITICAL: 8, Priority.LOW: 2},
        {Priority.CRITICAL: 9, Priority.LOW: 1},
        {Priority.CRITICAL: 10},
        {Priority.CRITICAL: 3},
    ]


def test_tenants_take_turns_if_their_jobs_are_due_at_the_same_time() -> None:
    many = [a_due_job(f"many-{number}") for number in range(100)]
    few = [a_due_job(f"few-{number}", tenant=TenantId(2)) for number in range(2)]
    assert ids(a_queue(*many, *few).take(5)) == ["many-0", "few-0", "many-1", "few-1", "many-2"]


def test_a_backlog_is_counted_by_priority() -> None:
    queue = a_queue(*(a_due_job(priority.word, priority) for priority in Priority), a_due_job("another"))
    assert [queue.at_least(priority) for priority in Priority] == [5, 4, 2, 1]
    assert sorted(ids(list(queue))) == ["another", "critical", "high", "low", "normal"]
    queue.clear()
    assert len(queue) == 0 and queue.take(5) == []


@given(
    rounds=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(Priority), st.integers(-900, 900), st.integers(1, 3))),
            st.integers(1, 8),
        )
    )
)
@settings(max_examples=50)
def test_everything_is_taken_once_and_nothing_before_something_more_urgent(
    rounds: list[tuple[list[tuple[Priority, int, int]], int]],
) -> None:
    queue = DueQueue(Priority)
    waiting: dict[str, DueJob] = {}
    number = 0
    for added, most in rounds:
        new = []
        for priority, seconds, tenant in added:
            number += 1
            new.append(a_due_job(str(number), priority, NOON + timedelta(seconds=seconds), TenantId(tenant)))
        waiting.update((job.job_id, job) for job in new)
        queue.add(new)
        taken = queue.take(most)
        assert len(taken) == min(most, len(waiting))
        for job in taken:
            del waiting[job.job_id]
        critical = [job for job in taken if job.lane_id == Priority.CRITICAL]
        others = [job for job in taken if job.lane_id != Priority.CRITICAL]
        assert taken == critical + others
        if any(job.lane_id == Priority.CRITICAL for job in waiting.values()):
            assert len(others) <= most // 5
        for last, rest in ((critical[-1:], critical_of(waiting)), (others[-1:], others_of(waiting))):
            assert all(urgency(job) <= urgency(other) for job in last for other in rest)
        assert [urgency(job) for job in others] == sorted(urgency(job) for job in others)


def urgency(job: DueJob) -> datetime:
    return job.next_fire_at - 5 * MINUTE * (0 if job.lane_id == Priority.CRITICAL else job.lane_id)


def critical_of(waiting: dict[str, DueJob]) -> list[DueJob]:
    return [job for job in waiting.values() if job.lane_id == Priority.CRITICAL]


def others_of(waiting: dict[str, DueJob]) -> list[DueJob]:
    return [job for job in waiting.values() if job.lane_id != Priority.CRITICAL]
