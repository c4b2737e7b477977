"""The filter of an operation as the query of the list that has the same parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from mainspring.domain.bulk import Target
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.filters import PAYLOAD_PARAMETER, label_filter, payload_filter, several, worker_filter
from mainspring.domain.intake.times import parse_time
from mainspring.operations.paging.search import DeadLetterQuery, JobQuery, RunQuery
from mainspring.wire.bulk import AnyFilter, DeadLettersFilter, JobsFilter, RunsFilter

KINDS: dict[Target, type[AnyFilter]] = {
    Target.JOBS: JobsFilter,
    Target.RUNS: RunsFilter,
    Target.DEAD_LETTERS: DeadLettersFilter,
}


@contextmanager
def field_in_filter() -> Iterator[None]:
    """An error of a parameter names its place in the body."""
    try:
        yield
    except InvalidInput as error:
        if error.field is not None and not error.field.startswith("filter"):
            error.field = f"filter.{error.field}"
        raise


def job_query(chosen: JobsFilter, begun: datetime | None, cursor: str | None, limit: int) -> JobQuery:
    """`begun`: jobs that were created later are left out."""
    with field_in_filter():
        return JobQuery(
            several(chosen.status), chosen.queue, chosen.owner, label_filter(chosen.label), chosen.q, cursor, limit,
            declared_by=chosen.declared_by,
            created_by=chosen.created_by,
            task=chosen.task,
            schedule_types=several(chosen.schedule_type, "schedule_type"),
            latest=several(chosen.latest_run, "latest_run"),
            health=several(chosen.health, "health"),
            created_after=_time(chosen.created_after, "created_after"),
            created_before=_earlier(_time(chosen.created_before, "created_before"), begun),
            next_fire_after=_time(chosen.next_fire_after, "next_fire_after"),
            next_fire_before=_time(chosen.next_fire_before, "next_fire_before"),
        )  # fmt: skip


def run_query(chosen: RunsFilter, begun: datetime | None) -> RunQuery:
    with field_in_filter():
        return RunQuery(
            several(chosen.status), chosen.job, chosen.queue, chosen.task, chosen.error, _time(chosen.since, "since"),
            _time(chosen.until, "until"),
            label=label_filter(chosen.label),
            worker_id=worker_filter(chosen.worker),
            created_by=chosen.created_by,
            payload=payload_filter((f"{PAYLOAD_PARAMETER}{path}", value) for path, value in chosen.payload.items()),
            created_after=_time(chosen.created_after, "created_after"),
            created_before=_earlier(_time(chosen.created_before, "created_before"), begun),
        )  # fmt: skip


def dead_letter_query(chosen: DeadLettersFilter) -> DeadLetterQuery:
    with field_in_filter():
        return DeadLetterQuery(
            chosen.job, chosen.task, chosen.queue, chosen.error, _time(chosen.since, "since"),
            _time(chosen.until, "until"),
        )  # fmt: skip


def _time(text: str | None, name: str) -> datetime | None:
    return None if text is None else parse_time(text, name)


def _earlier(given: datetime | None, begun: datetime | None) -> datetime | None:
    return min(filter(None, (given, begun)), default=None)
