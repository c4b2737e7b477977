"""The client that blocks. `AsyncClient` (async_client.py) is awaited. They differ only in how they send.

    with Client() as client:
        handle = client.submit(task="hello", payload={"name": "you"})
        print(handle.result(timeout=30))

Both find the server and the token: from their arguments, from MAINSPRING_URL and MAINSPRING_TOKEN, or from the data
folder of `mainspring up`.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from mainspring.domain.errors import Conflict, NotFound
from mainspring.kernel.addresses import ServerRotation
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.light_httpx import httpx
from mainspring.sdk.client import calls
from mainspring.sdk.client.backfill_handle import Backfill
from mainspring.sdk.client.bulk_methods import BulkMethods
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
from mainspring.sdk.client.handle import Handle
from mainspring.sdk.client.http_requests import answer_of, build_request, http_settings, no_answer, stream_request
from mainspring.sdk.client.if_exists import TRIES, IfExists, checked_if_exists, is_taken, replacing
from mainspring.sdk.client.job_fields import Duration, JobFields, When
from mainspring.sdk.client.log_stream import LogEvent, LogStream
from mainspring.sdk.client.methods import blocking, blocking_search
from mainspring.sdk.client.searches import PageT as SearchT
from mainspring.sdk.client.searches import Progress, search
from mainspring.sdk.client.server_events import ServerEvents
from mainspring.sdk.client.workflow_methods import WorkflowMethods
from mainspring.wire.jobs import JobView
from mainspring.wire.runs import RunView

T = TypeVar("T")
E = TypeVar("E")

_CLOCK = SystemClock()


class Client(WorkflowMethods, BulkMethods):
    """A blocking client. Threads can share one.

    `patience` is for how long a call is repeated while no server answers: a number of seconds, "30s" or a timedelta.
    The default is 15 s, and 2 s while connections are refused. `url` can contain several servers, separated by commas:
    if one does not answer, the next one is used. `ca` is the file of the authorities that are trusted instead of those
    of the system. `insecure_http` allows to send the token to another machine without TLS.
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
        transport: httpx.BaseTransport | None = None,
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
        self._http = httpx.Client(transport=transport, **http_settings(self.connection, timeout))
        # Connections are closed when nothing refers to the client any more, or when Python ends.
        self._close = weakref.finalize(self, self._http.close)

    def send(self, call: Call[T], *, patience: float | None = None, persist: bool = False) -> T:
        """Send a call of `mainspring.sdk.client.calls` and return its result. `patience` limits the client's own.
        `persist`: repeat it also while connections are refused, because the server has answered before."""
        limit = Patience.of(self.patience).at_most(inf if patience is None else patience, persist=persist)
        retrying = RetryingCall(call, url=self.connection.url, clock=_CLOCK, patience=limit)
        while True:
            address = self._rotation.current
            outcome = self._send_once(address, call)
            pause = retrying.next_delay(outcome, elsewhere=choose_next(self._rotation, address, outcome))
            if pause is None:
                return retrying.result()
            time.sleep(pause)

    def search(self, call: Call[SearchT], progress: Progress | None = None) -> SearchT:
        """The page that `call` requests. Where the server ends a search before its end, this goes on until the page is
        full or the search is over; `progress` is called each time."""
        steps = search(call, progress)
        try:
            asked = next(steps)
            while True:
                asked = steps.send(self.send(asked))
        except StopIteration as over:
            page: SearchT = over.value
            return page

    def pages(self, call: Call[PageT]) -> Iterator[PageT]:
        """All pages, starting with the one that `call` requests."""
        following_call: Call[PageT] | None = call
        while following_call is not None:
            page = self.send(following_call)
            yield page
            following_call = following(following_call, page)

    def submit(self, *, if_exists: IfExists | None = None, **fields: Unpack[JobFields]) -> Handle[Any]:
        """Create a job and return its handle. The fields are those of `POST /v1/jobs`: `task` or `command`, `payload`,
        one of `at`, `delay`, `every` and `cron`, and options. Without an idempotency key the job gets a generated one,
        so that the request can be repeated safely. `if_exists` says what to do if a job has the job_id: "keep" leaves
        it as it is, "replace" changes the fields that are given."""
        checked_if_exists(if_exists, fields)
        for tries_left in reversed(range(TRIES)):
            try:
                made = self.send(calls.submit(**fields))
                return self.handle(made.job_id).merged(made.unique)
            except Conflict as error:
                if not is_taken(error, if_exists):
                    raise
            handle = self.handle(str(fields["job_id"]))
            if if_exists == "keep":
                return handle.merged("kept")
            try:
                self.send(calls.update_job(handle.job_id, **replacing(fields)))
                return handle.merged("replaced")
            except NotFound:  # it has ended meanwhile
                if not tries_left:
                    raise
        raise AssertionError

    def add_job(self, task_id: str, time: When | None = None, payload: Any = None) -> Handle[Any]:
        """Run the task `task_id` at `time` (None: now) with `payload`."""
        return self.handle(self.send(calls.add_job(task_id, time, payload)).job_id)

    def handle(self, job_id: str, run_id: str | None = None) -> Handle[Any]:
        """A handle of a job, or of one run of it. Nothing is sent."""
        return Handle(self, job_id, run_id)

    def backfill(self, job_id: str, start: When, end: When, *, concurrency: int = 1, order: str = "oldest") -> Backfill:
        """Make up for the fires of the job from `start` on and before `end`, and return the handle of the backfill.
        Fires that have a run are left out. At most `concurrency` of its runs are alive at once. `order`: oldest or
        newest first."""
        made = self.send(calls.create_backfill(job_id, start, end, concurrency=concurrency, order=order))
        return self.backfill_handle(made.id)

    def backfill_handle(self, backfill_id: str) -> Backfill:
        """A handle of a backfill. Nothing is sent."""
        return Backfill(self, backfill_id)

    def all_jobs(self, **filters: Unpack[calls.JobFilters]) -> Iterator[JobView]:
        """All jobs that match the filters of `jobs`. Pages are fetched as needed."""
        for page in self.pages(calls.jobs(**filters)):
            yield from page.jobs

    def all_runs(self, **filters: Unpack[calls.RunFilters]) -> Iterator[RunView]:
        """All runs that match the filters of `runs`. Pages are fetched as needed."""
        for page in self.pages(calls.runs(**filters)):
            yield from page.runs

    def follow_logs(self, run_id: str, attempt: int | None = None) -> Iterator[str]:
        """The output of the run as it arrives, including retries, until the end of the run or of the given attempt."""
        for event in self.log_events(run_id, attempt):
            if event.text:
                yield event.text

    def log_events(self, run_id: str, attempt: int | None = None, after: str | None = None) -> Iterator[LogEvent]:
        """The events of `follow_logs`, including the start of each attempt and the status at the end. A broken
        connection is opened again, for as long as `patience` allows, and continues where it was. `after` begins
        at a byte of an attempt: "1:2048"."""
        return self._follow(self._log_stream(run_id, attempt, after))

    def events(self, *topics: str) -> Iterator[ChangeEvent]:
        """What changes, without end. Topics: jobs, runs, queues, workers, run:ID, job:ID, workflow-run:ID. A broken
        connection is opened again, for as long as `patience` allows; then an event `open` has `missed`, because what
        changed meanwhile is not told."""
        url, patience = self.connection.url, Patience.of(self.patience)
        return self._follow(ChangeStream(topics, url=url, clock=_CLOCK, patience=patience))

    def _follow(self, stream: ServerEvents[E]) -> Iterator[E]:
        while not stream.ended:
            address = self._rotation.current
            outcome: ServerAnswer | NoAnswer = stream.broke_off
            try:
                with self._http.stream(**stream_request(address, stream.call())) as response:
                    if response.is_success:
                        for data in response.iter_bytes():
                            yield from stream.feed(data)
                    else:
                        response.read()
                        outcome = answer_of(response)
            except httpx.TransportError as error:
                outcome = no_answer(error)
            if not stream.ended:
                elsewhere = choose_next(self._rotation, address, outcome)
                time.sleep(stream.pause(outcome, elsewhere=elsewhere))

    submit_batch = blocking(lambda: calls.submit_batch)
    job = blocking(lambda: calls.job)
    jobs = blocking_search(lambda: calls.jobs)
    job_status = blocking(lambda: calls.job_status)
    job_timeline = blocking(lambda: calls.job_timeline)
    job_runs = blocking(lambda: calls.job_runs)
    upcoming = blocking(lambda: calls.upcoming)
    missed = blocking(lambda: calls.missed)
    update_job = blocking(lambda: calls.update_job)
    cancel_job = blocking(lambda: calls.cancel_job)
    pause = blocking(lambda: calls.pause)
    resume = blocking(lambda: calls.resume)
    run_now = blocking(lambda: calls.run_now)
    run = blocking(lambda: calls.run)
    runs = blocking_search(lambda: calls.runs)
    cancel_run = blocking(lambda: calls.cancel_run)
    retry_run = blocking(lambda: calls.retry_run)
    timeline = blocking(lambda: calls.timeline)
    why = blocking(lambda: calls.why)
    why_job = blocking(lambda: calls.why_job)
    logs = blocking(lambda: calls.logs)
    log_lines = blocking(lambda: calls.log_lines)
    search_log = blocking(lambda: calls.search_log)
    search_logs = blocking_search(lambda: calls.search_logs)
    overview = blocking(lambda: calls.overview)
    failures = blocking(lambda: calls.failures)
    failure_group = blocking(lambda: calls.failure_group)
    job_series = blocking(lambda: calls.job_series)
    scaling = blocking(lambda: calls.scaling)
    preview = blocking(lambda: calls.preview)
    explain_schedule = blocking(lambda: calls.explain_schedule)
    upcoming_fires = blocking(lambda: calls.upcoming_fires)
    heatmap = blocking(lambda: calls.heatmap)
    find_ids = blocking(lambda: calls.find_ids)
    queues = blocking(lambda: calls.queues)
    limits = blocking(lambda: calls.limits)
    limit = blocking(lambda: calls.limit)
    set_limit = blocking(lambda: calls.set_limit)
    calendars = blocking(lambda: calls.calendars)
    calendar = blocking(lambda: calls.calendar)
    set_calendar = blocking(lambda: calls.set_calendar)
    preview_calendar = blocking(lambda: calls.preview_calendar)
    delete_calendar = blocking(lambda: calls.delete_calendar)
    channels = blocking(lambda: calls.channels)
    channel = blocking(lambda: calls.channel)
    set_channel = blocking(lambda: calls.set_channel)
    delete_channel = blocking(lambda: calls.delete_channel)
    test_channel = blocking(lambda: calls.test_channel)
    sinks = blocking(lambda: calls.sinks)
    sink = blocking(lambda: calls.sink)
    set_sink = blocking(lambda: calls.set_sink)
    delete_sink = blocking(lambda: calls.delete_sink)
    pause_sink = blocking(lambda: calls.pause_sink)
    resume_sink = blocking(lambda: calls.resume_sink)
    test_sink = blocking(lambda: calls.test_sink)
    log_retention = blocking(lambda: calls.log_retention)
    set_log_retention = blocking(lambda: calls.set_log_retention)
    rules = blocking(lambda: calls.rules)
    rule = blocking(lambda: calls.rule)
    set_rule = blocking(lambda: calls.set_rule)
    delete_rule = blocking(lambda: calls.delete_rule)
    mute_rule = blocking(lambda: calls.mute_rule)
    unmute_rule = blocking(lambda: calls.unmute_rule)
    notifications = blocking(lambda: calls.notifications)
    notification = blocking(lambda: calls.notification)
    send_notification = blocking(lambda: calls.send_notification)
    acknowledge_notification = blocking(lambda: calls.acknowledge_notification)
    queue = blocking(lambda: calls.queue)
    set_queue_limits = blocking(lambda: calls.set_queue_limits)
    pause_queue = blocking(lambda: calls.pause_queue)
    resume_queue = blocking(lambda: calls.resume_queue)
    tenant_limits = blocking(lambda: calls.tenant_limits)
    set_tenant_limits = blocking(lambda: calls.set_tenant_limits)
    tenant_usage = blocking(lambda: calls.tenant_usage)
    set_quotas = blocking(lambda: calls.set_quotas)
    pause_all = blocking(lambda: calls.pause_all)
    resume_all = blocking(lambda: calls.resume_all)
    tasks = blocking(lambda: calls.tasks)
    workers = blocking(lambda: calls.workers)
    worker = blocking(lambda: calls.worker)
    drain_worker = blocking(lambda: calls.drain_worker)
    create_backfill = blocking(lambda: calls.create_backfill)
    read_backfill = blocking(lambda: calls.read_backfill)
    backfills = blocking(lambda: calls.backfills)
    change_backfill = blocking(lambda: calls.change_backfill)
    pause_backfill = blocking(lambda: calls.pause_backfill)
    resume_backfill = blocking(lambda: calls.resume_backfill)
    cancel_backfill = blocking(lambda: calls.cancel_backfill)
    breakers = blocking(lambda: calls.breakers)
    reset_breaker = blocking(lambda: calls.reset_breaker)
    dead_letters = blocking(lambda: calls.dead_letters)
    dead_letter = blocking(lambda: calls.dead_letter)
    replay = blocking(lambda: calls.replay)
    replay_dead_letters = blocking(lambda: calls.replay_dead_letters)
    discard = blocking(lambda: calls.discard)
    discard_dead_letters = blocking(lambda: calls.discard_dead_letters)
    tenants = blocking(lambda: calls.tenants)
    add_tenant = blocking(lambda: calls.add_tenant)
    tokens = blocking(lambda: calls.tokens)
    add_token = blocking(lambda: calls.add_token)
    revoke_token = blocking(lambda: calls.revoke_token)
    sign_in_link = blocking(lambda: calls.sign_in_link)
    sessions = blocking(lambda: calls.sessions)
    end_session = blocking(lambda: calls.end_session)
    job_outcomes = blocking(lambda: calls.job_outcomes)
    sources = blocking(lambda: calls.sources)
    dead_messages = blocking(lambda: calls.dead_messages)
    delete_source = blocking(lambda: calls.delete_source)
    take_messages = blocking(lambda: calls.take_messages)
    views = blocking(lambda: calls.views)
    view = blocking(lambda: calls.view)
    set_view = blocking(lambda: calls.set_view)
    delete_view = blocking(lambda: calls.delete_view)
    emit = blocking(lambda: calls.emit)
    emit_batch = blocking(lambda: calls.emit_batch)
    emitted_events = blocking(lambda: calls.emitted_events)
    emitted_event = blocking(lambda: calls.emitted_event)
    test_condition = blocking(lambda: calls.test_condition)
    secrets = blocking(lambda: calls.secrets)
    secret = blocking(lambda: calls.secret)
    set_secret = blocking(lambda: calls.set_secret)
    delete_secret = blocking(lambda: calls.delete_secret)
    rotate_secret_key = blocking(lambda: calls.rotate_secret_key)
    users = blocking(lambda: calls.users)
    user = blocking(lambda: calls.user)
    invite_user = blocking(lambda: calls.invite_user)
    set_user_role = blocking(lambda: calls.set_user_role)
    disable_user = blocking(lambda: calls.disable_user)
    enable_user = blocking(lambda: calls.enable_user)
    reset_password = blocking(lambda: calls.reset_password)
    remove_user = blocking(lambda: calls.remove_user)
    own_user = blocking(lambda: calls.own_user)
    plan_files = blocking(lambda: calls.plan_files)
    apply_files = blocking(lambda: calls.apply_files)
    export_files = blocking(lambda: calls.export_files)
    health = blocking(lambda: calls.health)
    readiness = blocking(lambda: calls.readiness)
    audit = blocking(lambda: calls.audit)
    audit_chain = blocking(lambda: calls.audit_chain)

    def close(self) -> None:
        """Close the connections to the server."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _log_stream(self, run_id: str, attempt: int | None, after: str | None) -> LogStream:
        url, patience = self.connection.url, Patience.of(self.patience)
        return LogStream(run_id, attempt, url=url, clock=_CLOCK, patience=patience, after=after)

    def _send_once(self, address: str, call: Call[Any]) -> ServerAnswer | NoAnswer:
        try:
            return answer_of(self._http.send(build_request(self._http, address, call)))
        except httpx.TransportError as error:
            return no_answer(error)
