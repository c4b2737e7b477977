"""Searches the output of many runs, the newest run first (GET /v1/logs).

First a stretch of runs is found that may match: by the words of their chunks in PostgreSQL, of a job by its runs, or
one run with output after the other. Of these, the runs that a list with the same filters shows are taken, and their
logs are searched. When the time is over, the page ends where it has looked, and `next` continues there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from mainspring.domain.transitions import RunState, StoredState, shown_state
from mainspring.kernel.ids import parse_uuid, uuid7_time
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.logs.log_bytes import Bytes
from mainspring.operations.logs.log_pattern import Search, search_of
from mainspring.operations.logs.log_search import LogSearch, Searched
from mainspring.operations.logs.log_service import LogService
from mainspring.operations.lookup import load_lane
from mainspring.operations.paging.cursors import bad_cursor, decode_cursor, encode_cursor
from mainspring.operations.paging.search import LogQuery, RunQuery, searching
from mainspring.operations.read.quota_hold import read_quota_hold
from mainspring.operations.read.run_pages import find_runs
from mainspring.operations.read.runs import wanted_runs
from mainspring.operations.read.views import job_id_of
from mainspring.store import log_search
from mainspring.store.history import LiveRun, Run, RunFilter
from mainspring.store.lanes import LaneRegistry
from mainspring.store.log_files import folder_of
from mainspring.store.log_search import RunLog, Stretch, Times
from mainspring.store.log_table import LogTable
from mainspring.store.logs import Key
from mainspring.store.pool import Connection, Store
from mainspring.wire.logs import LogHit, LogHits

_BUDGET = 0.25  # seconds for a page
_FIRST, _MOST = 2000, 50_000  # chunks of a stretch: few where there may be hits, many after a page that was not full
_RUNS = 200  # whose logs are looked at together
_SMALL = 256 * 1024  # bytes of a log that is read with others
_TOGETHER = 2 * 1024 * 1024
_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TIME = datetime(9999, 1, 1, tzinfo=UTC)


class Place(NamedTuple):
    """Where a search continues: at runs older than `run_id`. With a fence, at the byte `start` of this log of it."""

    run_id: UUID
    fence: int | None = None
    start: int = 0

    def text(self) -> str:
        return f"{self.run_id}" if self.fence is None else f"{self.run_id} {self.fence} {self.start}"


class LogFinder:
    """`budget`: how long a search may look for further hits."""

    budget = _BUDGET

    def __init__(self, store: Store, lanes: LaneRegistry, logs: LogService) -> None:
        self._store = store
        self._lanes = lanes
        self._logs = logs

    async def find(self, caller: Caller, query: LogQuery) -> LogHits:
        """The logs that match, as far as one request looks. Raises InvalidInput for a text that cannot be searched."""
        search, place = search_of(query), _place(query.cursor)
        asked, _ = await wanted_runs(
            self._store, self._lanes, caller,
            RunQuery(
                query.statuses, query.job, query.queue, query.task, label=query.label, worker_id=query.worker_id
            ),
        )  # fmt: skip
        async with searching(self._store, caller.tenant, "output", query) as connection:
            page = _Page(self._lanes, self._logs, caller, query, search, asked, connection, self.budget)
            return await page.fill(place)


class _Page:
    def __init__(
        self,
        lanes: LaneRegistry,
        logs: LogService,
        caller: Caller,
        query: LogQuery,
        search: Search,
        asked: Sequence[RunFilter],
        connection: Connection,
        budget: float,
    ) -> None:
        self._lanes = lanes
        self._logs = logs
        # Whether all output is in PostgreSQL, whose chunks have their words.
        self._indexed = all(isinstance(store, LogTable) for store in logs.stores.all)
        self._caller = caller
        self._query = query
        self._search = search
        self._asked = asked
        self._connection = connection
        self._times: Times = (query.since or _FIRST_TIME, query.until or _LAST_TIME)
        self._budget = TimeSlices(budget)
        self._slices = TimeSlices()
        self._most = _FIRST
        self._looked = False  # at the newest chunks: a word that is not rare is found there
        self._hits: list[LogHit] = []

    async def fill(self, place: Place | None) -> LogHits:
        before = None if place is None else place.run_id
        if place is not None and place.fence is None:
            self._most, self._looked = _MOST, True
        if place is not None and place.fence is not None:
            stop = await self._look([place.run_id], place)
            if stop is not None:
                return self._page(stop)
        while True:
            stretch = await self._stretch(before)
            for start in range(0, len(stretch.run_ids), _RUNS):
                run_ids = stretch.run_ids[start : start + _RUNS]
                stop = await self._look(run_ids, None)
                if stop is None and start + _RUNS < len(stretch.run_ids) and self._budget.over:
                    stop = Place(run_ids[-1])
                if stop is not None:
                    return self._page(stop)
            if stretch.to is None:
                return LogHits(self._hits)
            before = stretch.to
            if self._budget.over:
                return self._page(Place(before))

    def _page(self, stop: Place) -> LogHits:
        full = len(self._hits) >= self._query.limit
        return LogHits(self._hits, encode_cursor(stop.text()), None if full else _time_of(stop.run_id))

    async def _stretch(self, before: UUID | None) -> Stretch:
        tenant = self._caller.tenant
        if self._query.job is not None:
            over = self._budget
            page = await find_runs(
                self._connection, tenant, self._asked, before, _RUNS, lambda: over.over, _RUNS, light=True
            )
            ids = [run.run_id for run in page.runs]
            return Stretch(ids, page.reached or (ids[-1] if len(ids) == _RUNS else None))
        most, self._most = self._most, min(4 * self._most, _MOST)
        if self._indexed:
            lanes, words = self._asked[0].lane_ids, self._search.words
            if words and self._looked:
                found = await log_search.runs_in_blocks(self._connection, tenant, before, self._times, lanes, words)
                if found is not None:
                    return found
            self._looked = True
            return await log_search.indexed_runs(self._connection, tenant, before, self._times, lanes, words, most)
        return await log_search.printing_runs(self._connection, tenant, before, self._times, most)

    async def _look(self, run_ids: Sequence[UUID], place: Place | None) -> Place | None:
        """Search the logs of these runs. Returns where to continue if the page is full or the time is over."""
        tenant = self._caller.tenant
        logs = await log_search.logs_of_runs(self._connection, tenant, run_ids, self._times)
        if place is not None and place.fence is not None:
            logs = [log for log in logs if log.log.fence <= place.fence]
        if not logs:
            return None
        runs = {run.run_id: run for run in await log_search.runs_among(self._connection, tenant, self._asked, logs)}
        logs = [log for log in logs if log.run_id in runs]
        for group in _groups(logs):
            stored = await log_search.small_logs(
                self._connection, tenant, [log for log in group if log.log.bytes <= _SMALL]
            )
            for log in group:
                start = place.start if place is not None and log.log.fence == place.fence else 0
                stop = await self._search_log(runs[log.run_id], log, start, stored)
                if stop is not None:
                    return stop
                if self._slices.over:
                    await self._slices.pause()
            if self._budget.over:
                return _after(group[-1], logs)
        return None

    async def _search_log(self, run: Run, log: RunLog, start: int, stored: dict[Key, bytes]) -> Place | None:
        """Where to continue, if that is before the end of the log or the page is full."""
        wanted, size, lines = self._search.wanted, log.log.bytes, self._query.lines
        data = stored.get(log.key) if not start else None
        while True:
            search = LogSearch(wanted, start, size, lines, ended=True)
            if data is not None:
                found = await search.run(_Held(data), "")
            else:
                found = await search.run(self._logs.bytes, self._folder(log))
            if found.matches or not found.more:
                break
            start = found.to
            if self._budget.over:
                return Place(log.run_id, log.log.fence, start)
        if found.matches:
            self._hits.append(await self._hit(run, log, found))
            if len(self._hits) >= self._query.limit:
                return Place(log.run_id, log.log.fence - 1, 0)
        return None

    async def _hit(self, run: Run, log: RunLog, found: Searched) -> LogHit:
        lane = await load_lane(self._lanes, self._connection, run.lane_id)
        state = RunState[StoredState(run.state).name]
        if isinstance(run, LiveRun):
            state = shown_state(run.state, run.ready_at, run.started_at, run.now)
            if run.state == StoredState.QUEUED and state is RunState.QUEUED:
                held = await read_quota_hold(self._connection, self._caller.tenant)
                state = state if held is None else RunState.HELD
        return LogHit(
            str(run.run_id), job_id_of(run), run.name or lane.task, lane.task, lane.queue, state.value,
            log.log.attempt, log.created_at, found.matches, found.more,
        )  # fmt: skip

    def _folder(self, log: RunLog) -> str:
        return folder_of(self._caller.tenant, log.run_id, log.log.attempt, log.log.fence)


class _Held:
    """A small log, which was read with others."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, _folder: str, start: int, end: int) -> AsyncIterator[Bytes]:
        yield Bytes(self._data[start:end], min(end, len(self._data)))


def _groups(logs: Sequence[RunLog]) -> Iterator[list[RunLog]]:
    """Logs that are read together."""
    group: list[RunLog] = []
    size = 0
    for log in logs:
        if group and size + log.log.bytes > _TOGETHER:
            yield group
            group, size = [], 0
        group.append(log)
        size += log.log.bytes
    if group:
        yield group


def _after(log: RunLog, logs: Sequence[RunLog]) -> Place | None:
    """Where to continue after this one of the logs."""
    return None if log is logs[-1] else Place(log.run_id, log.log.fence - 1, 0)


def _time_of(run_id: UUID) -> datetime:
    try:
        return uuid7_time(run_id)
    except OverflowError:  # an id that a client chose
        return _LAST_TIME


def _place(cursor: str | None) -> Place | None:
    if cursor is None:
        return None
    run, *rest = decode_cursor(cursor).split(" ")
    run_id = parse_uuid(run)
    numbers = [int(text) for text in rest if text.isascii() and text.isdigit() and len(text) < 18]
    if run_id is None or len(rest) not in (0, 2) or len(numbers) != len(rest):
        raise bad_cursor()
    return Place(run_id, *numbers)
