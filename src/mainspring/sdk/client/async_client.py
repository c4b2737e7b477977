"""The client that is awaited. `Client` (client.py) blocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from mainspring.domain.errors import Conflict, NotFound
from mainspring.kernel.addresses import ServerRotation
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.light_httpx import httpx
from mainspring.sdk.client import calls
from mainspring.sdk.client.backfill_handle import AsyncBackfill
from mainspring.sdk.client.bulk_methods import AsyncBulkMethods
from mainspring.sdk.client.change_stream import ChangeEvent, ChangeStream
from mainspring.sdk.client.connection import find_connection
from mainspring.sdk.client.core import (
    Call,
    NoAnswer,
    PageT,
    Patience,
    RetryingCall,
    ServerAnswer,
    checked_patience,
    choose_next,
    following,
)
from mainspring.sdk.client.handle import AsyncHandle
from mainspring.sdk.client.http_requests import answer_of, build_request, http_settings, no_answer, stream_request
from mainspring.sdk.client.if_exists import TRIES, IfExists, checked_if_exists, is_taken, replacing
from mainspring.sdk.client.job_fields import Duration, JobFields, When
from mainspring.sdk.client.log_stream import LogEvent, LogStream
from mainspring.sdk.client.methods import awaited, awaited_search
from mainspring.sdk.client.searches import PageT as SearchT
from mainspring.sdk.client.searches import Progress, search
from mainspring.sdk.client.server_events import ServerEvents
from mainspring.sdk.client.workflow_methods import AsyncWorkflowMethods
from mainspring.wire.jobs import JobView
from mainspring.wire.runs import RunView

T = TypeVar("T")
E = TypeVar("E")

_CLOCK = SystemClock()


class _AsyncHttp(httpx.AsyncClient):
    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """A connection that is reset just after it was opened is a transport error here, as it is with asyncio. With
        uvloop the socket of a closed transport is None, and anyio asks it for the name of its peer."""
        try:
            return await super().send(request, **options)
        except AttributeError as error:
            if error.obj is None and error.name == "getpeername":
                raise httpx.ReadError("the connection was reset", request=request) from error
            raise


class AsyncClient(AsyncWorkflowMethods, AsyncBulkMethods):
    """A client for async code. Its methods are coroutines, and its parameters are those of `Client`: `patience` is for
    how long a call is repeated while no server answers (15 s, and 2 s while connections are refused).
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        token_file: str | Path | None = None,
        data: str | Path | None = None,
        ca: str | Path | None = None,
        insecure_http: bool = False,
        patience: Duration | None = None,
        timeout: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.connection = find_connection(
            url,
            token,
            token_file=token_file,
            data=data,
            ca=ca,
            insecure_http=insecure_http or transport is not None,
        )
        self.patience = checked_patience(patience)
        self._rotation = ServerRotation(self.connection.addresses)
        self._http = _AsyncHttp(transport=transport, **http_settings(self.connection, timeout))

    async def send(self, call: Call[T], *, patience: float | None = None, persist: bool = False) -> T:
        """Send a call of `mainspring.sdk.client.calls` and return its result. `patience` limits the client's own.
        `persist`: repeat it also while connections are refused, because the server has answered before."""
        limit = Patience.of(self.patience).at_most(inf if patience is None else patience, persist=persist)
        retrying = RetryingCall(call, url=self.connection.url, clock=_CLOCK, patience=limit)
        while True:
            address = self._rotation.current
            outcome = await self._send_once(address, call)
            pause = retrying.next_delay(outcome, elsewhere=choose_next(self._rotation, address, outcome))
            if pause is None:
                return retrying.result()
            await asyncio.sleep(pause)

    async def search(self, call: Call[SearchT], progress: Progress | None = None) -> SearchT:
        """The page that `call` requests. Where the server ends a search before its end, this goes on until the page is
        full or the search is over; `progress` is called each time."""
        steps = search(call, progress)
        asked = next(steps)
        while True:
            page = await self.send(asked)
            try:
                asked = steps.send(page)
            except StopIteration as over:
                found: SearchT = over.value
                return found

    async def pages(self, call: Call[PageT]) -> AsyncIterator[PageT]:
        """All pages, starting with the one that `call` requests."""
        following_call: Call[PageT] | None = call
        while following_call is not None:
            page = await self.send(following_call)
            yield page
            following_call = following(following_call, page)

    async def submit(self, *, if_exists: IfExists | None = None, **fields: Unpack[JobFields]) -> AsyncHandle[Any]:
        """Create a job and return its handle. The fields are those of `POST /v1/jobs`: `task` or `command`, `payload`,
        one of `at`, `delay`, `every` and `cron`, and options. Without an idempotency key the job gets a generated one,
        so that the request can be repeated safely. `if_exists` says what to do if a job has the job_id: "keep" leaves
        it as it is, "replace" changes the fields that are given."""
        checked_if_exists(if_exists, fields)
        for tries_left in reversed(range(TRIES)):
            try:
                made = await self.send(calls.submit(**fields))
                return self.handle(made.job_id).merged(made.unique)
            except Conflict as error:
                if not is_taken(error, if_exists):
                    raise
            handle = self.handle(str(fields["job_id"]))
            if if_exists == "keep":
                return handle.merged("kept")
            try:
                await self.send(calls.update_job(handle.job_id, **replacing(fields)))
                return handle.merged("replaced")
            except NotFound:  # it has ended meanwhile
                if not tries_left:
                    raise
        raise AssertionError

    async def add_job(self, task_id: str, time: When | None = None, payload: Any = None) -> AsyncHandle[Any]:
        """Run the task `task_id` at `time` (None: now) with `payload`."""
        return self.handle((await self.send(calls.add_job(task_id, time, payload))).job_id)

    def handle(self, job_id: str, run_id: str | None = None) -> AsyncHandle[Any]:
        """A handle of a job, or of one run of it. Nothing is sent."""
        return AsyncHandle(self, job_id, run_id)

    async def backfill(
        self, job_id: str, start: When, end: When, *, concurrency: int = 1, order: str = "oldest"
    ) -> AsyncBackfill:
        """Make up for the fires of the job from `start` on and before `end`, and return the handle of the backfill.
        Fires that have a run are left out. At most `concurrency` of its runs are alive at once. `order`: oldest or
        newest first."""
        made = await self.send(calls.create_backfill(job_id, start, end, concurrency=concurrency, order=order))
        return self.backfill_handle(made.id)

    def backfill_handle(self, backfill_id: str) -> AsyncBackfill:
        """A handle of a backfill. Nothing is sent."""
        return AsyncBackfill(self, backfill_id)

    async def all_jobs(self, **filters: Unpack[calls.JobFilters]) -> AsyncIterator[JobView]:
        """All jobs that match the filters of `jobs`. Pages are fetched as needed."""
        async for page in self.pages(calls.jobs(**filters)):
            for job in page.jobs:
                yield job

    async def all_runs(self, **filters: Unpack[calls.RunFilters]) -> AsyncIterator[RunView]:
        """All runs that match the filters of `runs`. Pages are fetched as needed."""
        async for page in self.pages(calls.runs(**filters)):
            for run in page.runs:
                yield run

    async def follow_logs(self, run_id: str, attempt: int | None = None) -> AsyncIterator[str]:
        """The output of the run as it arrives, including retries, until the end of the run or of the given attempt."""
        async for event in self.log_events(run_id, attempt):
            if event.text:
                yield event.text

    def log_events(self, run_id: str, attempt: int | None = None, after: str | None = None) -> AsyncIterator[LogEvent]:
        """The events of `follow_logs`, including the start of each attempt and the status at the end. A broken
        connection is opened again, for as long as `patience` allows, and continues where it was. `after` begins
        at a byte of an attempt: "1:2048"."""
        return self._follow(self._log_stream(run_id, attempt, after))

    def events(self, *topics: str) -> AsyncIterator[ChangeEvent]:
        """What changes, without end. Topics: jobs, runs, queues, workers, run:ID, job:ID, workflow-run:ID. A broken
        connection is opened again, for as long as `patience` allows; then an event `open` has `missed`, because what
        changed meanwhile is not told."""
        url, patience = self.connection.url, Patience.of(self.patience)
        return self._follow(ChangeStream(topics, url=url, clock=_CLOCK, patience=patience))

    async def _follow(self, stream: ServerEvents[E]) -> AsyncIterator[E]:
        while not stream.ended:
            address = self._rotation.current
            outcome: ServerAnswer | NoAnswer = stream.broke_off
            try:
                async with self._http.stream(**stream_request(address, stream.call())) as response:
                    if response.is_success:
                        async for data in response.aiter_bytes():
                            for event in stream.feed(data):
                                yield event
                    else:
                        await response.aread()
                        outcome = answer_of(response)
            except httpx.TransportError as error:
                outcome = no_answer(error)
            if not stream.ended:
                elsewhere = choose_next(self._rotation, address, outcome)
                await asyncio.sleep(stream.pause(outcome, elsewhere=elsewhere))

    submit_batch = awaited(calls.submit_batch)
    job = awaited(calls.job)
    jobs = awaited_search(calls.jobs)
    job_status = awaited(calls.job_status)
    job_timeline = awaited(calls.job_timeline)
    job_runs = awaited(calls.job_runs)
    upcoming = awaited(calls.upcoming)
    missed = awaited(calls.missed)
    update_job = awaited(calls.update_job)
    cancel_job = awaited(calls.cancel_job)
    pause = awaited(calls.pause)
    resume = awaited(calls.resume)
    run_now = awaited(calls.run_now)
    run = awaited(calls.run)
    runs = awaited_search(calls.runs)
    cancel_run = awaited(calls.cancel_run)
    retry_run = awaited(calls.retry_run)
    timeline = awaited(calls.timeline)
    why = awaited(calls.why)
    why_job = awaited(calls.why_job)
    logs = awaited(calls.logs)
    log_lines = awaited(calls.log_lines)
    search_log = awaited(calls.search_log)
    overview = awaited(calls.overview)
    failures = awaited(calls.failures)
    failure_group = awaited(calls.failure_group)
    job_series = awaited(calls.job_series)
    preview = awaited(calls.preview)
    explain_schedule = awaited(calls.explain_schedule)
    upcoming_fires = awaited(calls.upcoming_fires)
    heatmap = awaited(calls.heatmap)
    find_ids = awaited(calls.find_ids)
    queues = awaited(calls.queues)
    limits = awaited(calls.limits)
    limit = awaited(calls.limit)
    set_limit = awaited(calls.set_limit)
    calendars = awaited(calls.calendars)
    calendar = awaited(calls.calendar)
    set_calendar = awaited(calls.set_calendar)
    delete_calendar = awaited(calls.delete_calendar)
    queue = awaited(calls.queue)
    set_queue_limits = awaited(calls.set_queue_limits)
    pause_queue = awaited(calls.pause_queue)
    resume_queue = awaited(calls.resume_queue)
    tenant_limits = awaited(calls.tenant_limits)
    set_tenant_limits = awaited(calls.set_tenant_limits)
    pause_all = awaited(calls.pause_all)
    resume_all = awaited(calls.resume_all)
    tasks = awaited(calls.tasks)
    workers = awaited(calls.workers)
    worker = awaited(calls.worker)
    drain_worker = awaited(calls.drain_worker)
    create_backfill = awaited(calls.create_backfill)
    read_backfill = awaited(calls.read_backfill)
    backfills = awaited(calls.backfills)
    change_backfill = awaited(calls.change_backfill)
    pause_backfill = awaited(calls.pause_backfill)
    resume_backfill = awaited(calls.resume_backfill)
    cancel_backfill = awaited(calls.cancel_backfill)
    breakers = awaited(calls.breakers)
    reset_breaker = awaited(calls.reset_breaker)
    dead_letters = awaited(calls.dead_letters)
    dead_letter = awaited(calls.dead_letter)
    replay = awaited(calls.replay)
    replay_dead_letters = awaited(calls.replay_dead_letters)
    discard = awaited(calls.discard)
    discard_dead_letters = awaited(calls.discard_dead_letters)
    tenants = awaited(calls.tenants)
    add_tenant = awaited(calls.add_tenant)
    tokens = awaited(calls.tokens)
    add_token = awaited(calls.add_token)
    revoke_token = awaited(calls.revoke_token)
    sign_in_link = awaited(calls.sign_in_link)
    sessions = awaited(calls.sessions)
    end_session = awaited(calls.end_session)
    health = awaited(calls.health)
    readiness = awaited(calls.readiness)

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _log_stream(self, run_id: str, attempt: int | None, after: str | None) -> LogStream:
        url, patience = self.connection.url, Patience.of(self.patience)
        return LogStream(run_id, attempt, url=url, clock=_CLOCK, patience=patience, after=after)

    async def _send_once(self, address: str, call: Call[Any]) -> ServerAnswer | NoAnswer:
        try:
            return answer_of(await self._http.send(build_request(self._http, address, call)))
        except httpx.TransportError as error:
            return no_answer(error)
