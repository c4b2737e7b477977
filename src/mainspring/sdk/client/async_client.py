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

    submit_batch = awaited(lambda: calls.submit_batch)
    job = awaited(lambda: calls.job)
    jobs = awaited_search(lambda: calls.jobs)
    job_status = awaited(lambda: calls.job_status)
    job_timeline = awaited(lambda: calls.job_timeline)
    job_runs = awaited(lambda: calls.job_runs)
    upcoming = awaited(lambda: calls.upcoming)
    missed = awaited(lambda: calls.missed)
    update_job = awaited(lambda: calls.update_job)
    cancel_job = awaited(lambda: calls.cancel_job)
    pause = awaited(lambda: calls.pause)
    resume = awaited(lambda: calls.resume)
    run_now = awaited(lambda: calls.run_now)
    run = awaited(lambda: calls.run)
    runs = awaited_search(lambda: calls.runs)
    cancel_run = awaited(lambda: calls.cancel_run)
    retry_run = awaited(lambda: calls.retry_run)
    timeline = awaited(lambda: calls.timeline)
    why = awaited(lambda: calls.why)
    why_job = awaited(lambda: calls.why_job)
    logs = awaited(lambda: calls.logs)
    log_lines = awaited(lambda: calls.log_lines)
    search_log = awaited(lambda: calls.search_log)
    search_logs = awaited_search(lambda: calls.search_logs)
    overview = awaited(lambda: calls.overview)
    failures = awaited(lambda: calls.failures)
    failure_group = awaited(lambda: calls.failure_group)
    job_series = awaited(lambda: calls.job_series)
    scaling = awaited(lambda: calls.scaling)
    preview = awaited(lambda: calls.preview)
    explain_schedule = awaited(lambda: calls.explain_schedule)
    upcoming_fires = awaited(lambda: calls.upcoming_fires)
    heatmap = awaited(lambda: calls.heatmap)
    find_ids = awaited(lambda: calls.find_ids)
    queues = awaited(lambda: calls.queues)
    limits = awaited(lambda: calls.limits)
    limit = awaited(lambda: calls.limit)
    set_limit = awaited(lambda: calls.set_limit)
    calendars = awaited(lambda: calls.calendars)
    calendar = awaited(lambda: calls.calendar)
    set_calendar = awaited(lambda: calls.set_calendar)
    preview_calendar = awaited(lambda: calls.preview_calendar)
    delete_calendar = awaited(lambda: calls.delete_calendar)
    channels = awaited(lambda: calls.channels)
    channel = awaited(lambda: calls.channel)
    set_channel = awaited(lambda: calls.set_channel)
    delete_channel = awaited(lambda: calls.delete_channel)
    test_channel = awaited(lambda: calls.test_channel)
    sinks = awaited(lambda: calls.sinks)
    sink = awaited(lambda: calls.sink)
    set_sink = awaited(lambda: calls.set_sink)
    delete_sink = awaited(lambda: calls.delete_sink)
    pause_sink = awaited(lambda: calls.pause_sink)
    resume_sink = awaited(lambda: calls.resume_sink)
    test_sink = awaited(lambda: calls.test_sink)
    log_retention = awaited(lambda: calls.log_retention)
    set_log_retention = awaited(lambda: calls.set_log_retention)
    rules = awaited(lambda: calls.rules)
    rule = awaited(lambda: calls.rule)
    set_rule = awaited(lambda: calls.set_rule)
    delete_rule = awaited(lambda: calls.delete_rule)
    mute_rule = awaited(lambda: calls.mute_rule)
    unmute_rule = awaited(lambda: calls.unmute_rule)
    notifications = awaited(lambda: calls.notifications)
    notification = awaited(lambda: calls.notification)
    send_notification = awaited(lambda: calls.send_notification)
    acknowledge_notification = awaited(lambda: calls.acknowledge_notification)
    queue = awaited(lambda: calls.queue)
    set_queue_limits = awaited(lambda: calls.set_queue_limits)
    pause_queue = awaited(lambda: calls.pause_queue)
    resume_queue = awaited(lambda: calls.resume_queue)
    tenant_limits = awaited(lambda: calls.tenant_limits)
    set_tenant_limits = awaited(lambda: calls.set_tenant_limits)
    tenant_usage = awaited(lambda: calls.tenant_usage)
    set_quotas = awaited(lambda: calls.set_quotas)
    pause_all = awaited(lambda: calls.pause_all)
    resume_all = awaited(lambda: calls.resume_all)
    tasks = awaited(lambda: calls.tasks)
    workers = awaited(lambda: calls.workers)
    worker = awaited(lambda: calls.worker)
    drain_worker = awaited(lambda: calls.drain_worker)
    create_backfill = awaited(lambda: calls.create_backfill)
    read_backfill = awaited(lambda: calls.read_backfill)
    backfills = awaited(lambda: calls.backfills)
    change_backfill = awaited(lambda: calls.change_backfill)
    pause_backfill = awaited(lambda: calls.pause_backfill)
    resume_backfill = awaited(lambda: calls.resume_backfill)
    cancel_backfill = awaited(lambda: calls.cancel_backfill)
    breakers = awaited(lambda: calls.breakers)
    reset_breaker = awaited(lambda: calls.reset_breaker)
    dead_letters = awaited(lambda: calls.dead_letters)
    dead_letter = awaited(lambda: calls.dead_letter)
    replay = awaited(lambda: calls.replay)
    replay_dead_letters = awaited(lambda: calls.replay_dead_letters)
    discard = awaited(lambda: calls.discard)
    discard_dead_letters = awaited(lambda: calls.discard_dead_letters)
    tenants = awaited(lambda: calls.tenants)
    add_tenant = awaited(lambda: calls.add_tenant)
    tokens = awaited(lambda: calls.tokens)
    add_token = awaited(lambda: calls.add_token)
    revoke_token = awaited(lambda: calls.revoke_token)
    sign_in_link = awaited(lambda: calls.sign_in_link)
    sessions = awaited(lambda: calls.sessions)
    end_session = awaited(lambda: calls.end_session)
    job_outcomes = awaited(lambda: calls.job_outcomes)
    sources = awaited(lambda: calls.sources)
    dead_messages = awaited(lambda: calls.dead_messages)
    delete_source = awaited(lambda: calls.delete_source)
    take_messages = awaited(lambda: calls.take_messages)
    views = awaited(lambda: calls.views)
    view = awaited(lambda: calls.view)
    set_view = awaited(lambda: calls.set_view)
    delete_view = awaited(lambda: calls.delete_view)
    emit = awaited(lambda: calls.emit)
    emit_batch = awaited(lambda: calls.emit_batch)
    emitted_events = awaited(lambda: calls.emitted_events)
    emitted_event = awaited(lambda: calls.emitted_event)
    test_condition = awaited(lambda: calls.test_condition)
    secrets = awaited(lambda: calls.secrets)
    secret = awaited(lambda: calls.secret)
    set_secret = awaited(lambda: calls.set_secret)
    delete_secret = awaited(lambda: calls.delete_secret)
    rotate_secret_key = awaited(lambda: calls.rotate_secret_key)
    users = awaited(lambda: calls.users)
    user = awaited(lambda: calls.user)
    invite_user = awaited(lambda: calls.invite_user)
    set_user_role = awaited(lambda: calls.set_user_role)
    disable_user = awaited(lambda: calls.disable_user)
    enable_user = awaited(lambda: calls.enable_user)
    reset_password = awaited(lambda: calls.reset_password)
    remove_user = awaited(lambda: calls.remove_user)
    own_user = awaited(lambda: calls.own_user)
    plan_files = awaited(lambda: calls.plan_files)
    apply_files = awaited(lambda: calls.apply_files)
    export_files = awaited(lambda: calls.export_files)
    health = awaited(lambda: calls.health)
    readiness = awaited(lambda: calls.readiness)
    audit = awaited(lambda: calls.audit)
    audit_chain = awaited(lambda: calls.audit_chain)

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
