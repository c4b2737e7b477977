"""The parameters of lists and searches with their bounds, the names of states in them, and the time of a search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.errors import InvalidInput, Unavailable
from mainspring.domain.state_names import named_states
from mainspring.domain.transitions import LIVE, SHOWN_ASSIGNED, SHOWN_SCHEDULED, RunState, StoredState
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Store
from mainspring.store.searches import SearchesBusy, SearchTooSlow

_LONGEST_TEXT = 200  # that is searched for
_LONGEST_NAME = 1000
_MOST_STATUSES = 20
# What a narrower search gives. With a job, or with a time, fewer rows are read.
_NARROWER = {
    "jobs": "give the job_id itself (GET /v1/jobs/{job_id}), or leave filters out and read page by page",
    "runs": "give `job`, or `since` with a recent time",
    "output": "give `since` with a recent time, or a job",
    "dead letters": "give `since` with a recent time, or leave `error` out and read page by page",
}


# The parameters of fields that have another name.
_PARAMETERS = {
    "text": "q", "statuses": "status", "latest": "latest_run", "worker_id": "worker", "schedule_types": "schedule_type",
}  # fmt: skip


class RunQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/runs`."""

    statuses: Sequence[str] = ()
    job: str | None = None
    queue: str | None = None
    task: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    cursor: str | None = None
    limit: int = 50
    label: tuple[str, str] | None = None
    scheduled_after: datetime | None = None
    scheduled_before: datetime | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    generation: int | None = None
    worker_id: UUID | None = None
    created_by: str | None = None
    payload: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _check_bounds(self)

    @property
    def due_from(self) -> datetime | None:
        return max(filter(None, (self.since, self.scheduled_after)), default=None)

    @property
    def due_until(self) -> datetime | None:
        return min(filter(None, (self.until, self.scheduled_before)), default=None)


class JobQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/jobs`."""

    statuses: Sequence[str] = ()
    queue: str | None = None
    owner: str | None = None
    label: tuple[str, str] | None = None
    text: str | None = None
    cursor: str | None = None
    limit: int = 50
    declared_by: str | None = None
    latest: Sequence[str] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    next_fire_after: datetime | None = None
    next_fire_before: datetime | None = None
    task: str | None = None
    schedule_types: Sequence[str] = ()
    created_by: str | None = None
    health: Sequence[str] = ()

    def __post_init__(self) -> None:
        _check_bounds(self)


class DeadLetterQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/dead-letters`. `since` and `until` refer to the time at which the run failed."""

    job: str | None = None
    task: str | None = None
    queue: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    cursor: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        _check_bounds(self)


class LogQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/logs`. `lines`: of each log."""

    text: str | None = None
    regex: str | None = None
    inside_words: bool = False
    job: str | None = None
    queue: str | None = None
    task: str | None = None
    label: tuple[str, str] | None = None
    worker_id: UUID | None = None
    statuses: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    cursor: str | None = None
    limit: int = 20
    lines: int = 5

    def __post_init__(self) -> None:
        _check_bounds(self)


Query = RunQuery | JobQuery | DeadLetterQuery | LogQuery


def _check_bounds(query: Query) -> None:
    """Raise InvalidInput for a filter that is longer than anything that it can match."""
    for name in query.__struct_fields__:
        if name == "cursor":  # is read by cursors.py
            continue
        value = getattr(query, name)
        most = _LONGEST_TEXT if name in ("text", "error", "regex") else _LONGEST_NAME
        if isinstance(value, str) and len(value) > most:
            raise _too_long(_parameter(name), f"at most {most} characters")
        if name == "label" and value is not None and sum(map(len, value)) > _LONGEST_NAME:
            raise _too_long(name, f"at most {_LONGEST_NAME} characters")
        if name in ("statuses", "latest", "schedule_types", "health") and len(value) > _MOST_STATUSES:
            raise _too_long(_parameter(name), f"at most {_MOST_STATUSES} of them")


def _too_long(parameter: str, expected: str) -> InvalidInput:
    return InvalidInput(f"{parameter} is too long", code="invalid_parameter", field=parameter, expected=expected)


def _parameter(field: str) -> str:
    return _PARAMETERS.get(field, field)


def _filters(query: Query) -> list[str]:
    """The parameters that a query filters by, those that cost most first."""
    names = [name for name in query.__struct_fields__ if name not in ("cursor", "limit") and getattr(query, name)]
    return [_parameter(name) for name in sorted(names, key=lambda name: name not in ("text", "error", "label"))]


@asynccontextmanager
async def searching(
    store: Store, tenant: TenantId, what: str, query: Query | None = None, isolation: str | None = None
) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
    """A connection for a list of `what`, for as long as a search may take."""
    with search_in_words(what, query):
        async with store.search(tenant, isolation=isolation) as connection:
            yield connection


@contextmanager
def search_in_words(what: str, query: Query | None = None) -> Iterator[None]:
    """Turns the end of a search that takes too long into an error that names the filter and what to do."""
    try:
        yield
    except SearchesBusy:
        raise Unavailable(
            "too many lists and searches of this tenant are under way", code="too_many_searches",
            hint="send fewer at a time, and try again after 1 s",
        ) from None  # fmt: skip
    except SearchTooSlow as error:
        filters = _filters(query) if query is not None else []
        if not filters:
            raise Unavailable(
                f"the list of {what} took longer than {error.seconds:g} s", code="list_too_slow",
                hint="try again shortly, with a smaller limit if there is one",
            ) from None  # fmt: skip
        raise InvalidInput(
            f"the search for {what} took longer than {error.seconds:g} s, with {', '.join(filters)}",
            code="search_too_slow", field=filters[0], hint=_NARROWER[what],
        ) from None  # fmt: skip


def run_states(names: Sequence[str], *, quota_holds: bool = False) -> tuple[list[int] | None, list[int] | None]:
    """The numbers of live states, as they are listed, and of ended ones. None for any. `quota_holds`: whether runs that
    are QUEUED and not assigned to a worker are shown as HELD."""
    if not names:
        return None, None
    wanted = named_states(names)
    stored = {StoredState[state.name] for state in wanted if state is not RunState.SCHEDULED}
    shown = {SHOWN_SCHEDULED} if RunState.SCHEDULED in wanted else set()
    if RunState.QUEUED in wanted:
        shown.add(SHOWN_ASSIGNED)
    live = shown | (stored & LIVE)
    if quota_holds:
        live.discard(StoredState.QUEUED)
        if RunState.HELD in wanted:
            live.add(StoredState.QUEUED)
    return sorted(live), sorted(stored - LIVE)
