"""The calls of the client: one function per route. Each returns the `Call` that a client sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from msgspec import UNSET, UnsetType

from mainspring.domain.errors import InvalidInput
from mainspring.domain.run_key import rfc3339
from mainspring.kernel.ids import uuid7
from mainspring.sdk.client.core import Answer, Call, encode, json_of, next_cursor, segment
from mainspring.sdk.client.job_fields import JobChanges, JobFields, When, job_patch, job_request
from mainspring.wire.access import TenantList, TenantMade, TokenList, TokenMade, TokenView
from mainspring.wire.applications import DeclarationRequest, DeclarationView
from mainspring.wire.backfills import BackfillList, BackfillView
from mainspring.wire.gates import GateRequest, GateView, PauseRequest, RateRequest
from mainspring.wire.ids import IdList
from mainspring.wire.insights import Overview
from mainspring.wire.jobs import BatchCreated, JobCreated, JobList, JobView, MissedRange, RunNowAccepted, Upcoming
from mainspring.wire.limits import BreakerList, BreakerView, LimitDetails, LimitList, LimitRequest
from mainspring.wire.protocol import GENERATED_KEY
from mainspring.wire.runs import (
    DeadLetterList,
    DeadLetterView,
    Discarded,
    Health,
    JobStatus,
    JobTimeline,
    JobTimelineEntry,
    QueueList,
    QueueView,
    Readiness,
    Replayed,
    RunList,
    RunView,
    TimelineEntry,
    Why,
    WorkerList,
    WorkerView,
)
from mainspring.wire.tasks import TaskList


class JobFilters(TypedDict, total=False):
    """Filters for jobs. `status` and `latest_run` may name several, with commas. Times from `_after` on, and before
    `_before`."""

    status: str | None
    latest_run: str | None
    label: str | None
    queue: str | None
    owner: str | None
    q: str | None
    declared_by: str | None
    created_after: When | None
    created_before: When | None
    next_fire_after: When | None
    next_fire_before: When | None
    limit: int | None
    cursor: str | None


class RunFilters(TypedDict, total=False):
    """Filters for runs. `since` and `until` are other names of `scheduled_after` and `scheduled_before`."""

    status: str | None
    job: str | None
    queue: str | None
    task: str | None
    error: str | None
    label: str | None
    since: When | None
    until: When | None
    scheduled_after: When | None
    scheduled_before: When | None
    created_after: When | None
    created_before: When | None
    generation: int | None
    limit: int | None
    cursor: str | None


class DeadLetterFilters(TypedDict, total=False):
    """Filters for dead letters. `error` searches error messages. `since` and `until` are compared with `died_at`."""

    job: str | None
    task: str | None
    queue: str | None
    error: str | None
    since: When | None
    until: When | None


_job_created = json_of(JobCreated)
_batch_created = json_of(BatchCreated)
_job = json_of(JobView)
_job_list = json_of(JobList)
_job_status = json_of(JobStatus)
_upcoming = json_of(Upcoming)
_missed = json_of(list[MissedRange])
_timeline_entries = json_of(list[JobTimelineEntry])
_run_now = json_of(RunNowAccepted)
_run = json_of(RunView)
_run_list = json_of(RunList)
_run_array = json_of(list[RunView])
_why = json_of(Why)
_id_list = json_of(IdList)
_gate = json_of(GateView)
_queue = json_of(QueueView)
_overview = json_of(Overview)
_queue_list = json_of(QueueList)
_breaker = json_of(BreakerView)
_backfill = json_of(BackfillView)
_backfill_list = json_of(BackfillList)
_breaker_list = json_of(BreakerList)
_limit = json_of(LimitDetails)
_limit_list = json_of(LimitList)
_worker = json_of(WorkerView)
_worker_list = json_of(WorkerList)
_task_list = json_of(TaskList)
_dead_letter = json_of(DeadLetterView)
_dead_letter_list = json_of(DeadLetterList)
_timeline = json_of(list[TimelineEntry])
_replayed = json_of(Replayed)
_discarded = json_of(Discarded)
_tenant_made = json_of(TenantMade)
_tenant_list = json_of(TenantList)
_token = json_of(TokenView)
_token_made = json_of(TokenMade)
_token_list = json_of(TokenList)
_declaration = json_of(DeclarationView)
_health = json_of(Health)
_readiness = json_of(Readiness)


def submit(**fields: Unpack[JobFields]) -> Call[JobCreated]:
    """Create a job. Without an idempotency key it gets a generated one, so that the request can be repeated safely."""
    body = job_request(fields)
    body.setdefault("idempotency_key", f"{GENERATED_KEY}{uuid7()}")
    return Call("POST", "/v1/jobs", _job_created, body=encode(body))


def add_job(task_id: str, time: When | None = None, payload: Any = None) -> Call[JobCreated]:
    """Run the task `task_id` at `time` (None: now) with `payload`."""
    return submit(task=task_id, at=time, payload=payload)


def submit_batch(jobs: Iterable[JobFields | Mapping[str, Any]]) -> Call[BatchCreated]:
    """Create up to 10,000 jobs, all or none. It is repeated after a lost response only if each has an idempotency
    key."""
    bodies = [job_request(fields) for fields in jobs]
    keyed = all("idempotency_key" in body for body in bodies)
    return Call("POST", "/v1/jobs:batch", _batch_created, body=encode({"jobs": bodies}), repeatable=keyed)


def job(job_id: str, *, generation: int | None = None) -> Call[JobView]:
    """The job `job_id`, or an earlier generation of it."""
    return Call("GET", _job_path(job_id), _job, params=_params({"generation": generation}))


def jobs(**filters: Unpack[JobFilters]) -> Call[JobList]:
    """One page of jobs, newest first: those that have yet to fire or will fire again, or those with a `status`.
    `label` is "key:value". `q` searches names and ids."""
    return Call("GET", "/v1/jobs", _job_list, params=_params(filters))


def job_status(job_id: str) -> Call[JobStatus]:
    """The job's status and its latest run."""
    return Call("GET", _job_path(job_id, "/status"), _job_status)


def job_runs(
    job_id: str, *, limit: int | None = None, cursor: str | None = None, generation: int | None = None
) -> Call[RunList]:
    """One page of the job's runs, newest first, of all its generations or of one."""
    params = _params({"limit": limit, "cursor": cursor, "generation": generation})
    return Call("GET", _job_path(job_id, "/runs"), _run_page, params=params)


def upcoming(job_id: str, n: int = 20) -> Call[Upcoming]:
    """The job's next `n` fire times."""
    return Call("GET", _job_path(job_id, "/upcoming"), _upcoming, params=_params({"n": n}))


def missed(job_id: str) -> Call[list[MissedRange]]:
    """The job's missed fires, as ranges with a reason."""
    return Call("GET", _job_path(job_id, "/missed"), _missed)


def job_timeline(job_id: str, *, limit: int | None = None, cursor: str | None = None) -> Call[JobTimeline]:
    """One page of what happened to the job, newest first: its runs, its creation and last change, and missed fires."""
    params = _params({"limit": limit, "cursor": cursor})
    return Call("GET", _job_path(job_id, "/timeline"), _timeline_page, params=params)


def update_job(job_id: str, *, if_version: int | None = None, **changes: Unpack[JobChanges]) -> Call[JobView]:
    """Change some of the job's fields. With `if_version`, only if the job still has that version."""
    headers = () if if_version is None else (("If-Match", f'"{if_version}"'),)
    body = encode(job_patch(changes))
    # After the first request the version has changed, so a repeated one would be rejected although the first succeeded.
    return Call("PATCH", _job_path(job_id), _job, body=body, headers=headers, repeatable=if_version is None)


def cancel_job(job_id: str) -> Call[JobView]:
    """Cancel the job and its live runs."""
    return Call("DELETE", _job_path(job_id), _job)


def pause(job_id: str) -> Call[JobView]:
    """Stop firing the job until it is resumed."""
    return _verb(_job_path(job_id, ":pause"), _job)


def resume(job_id: str) -> Call[JobView]:
    """Resume the job from its next fire time on."""
    return _verb(_job_path(job_id, ":resume"), _job)


def run_now(
    job_id: str, payload: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
) -> Call[RunNowAccepted]:
    """Run the job once now, in addition to its schedule, with another payload if one is given. A one-time job that has
    fired is repeated. The answer has the status of the run: SKIPPED if another run of the job is alive. It is repeated
    after a lost response only with an idempotency key, which stands for one run of this job."""
    given = {} if idempotency_key is None else {"idempotency_key": idempotency_key}
    body = _with_payload(given, payload)
    return Call("POST", _job_path(job_id, ":runNow"), _run_now, body=body, repeatable=idempotency_key is not None)


def run(run_id: str) -> Call[RunView]:
    """The run `run_id`."""
    return Call("GET", _run_path(run_id), _run)


def runs(**filters: Unpack[RunFilters]) -> Call[RunList]:
    """One page of runs, newest first. `error` searches error messages."""
    return Call("GET", "/v1/runs", _run_list, params=_params(filters))


def cancel_run(run_id: str) -> Call[RunView]:
    """Cancel one run: at once if it waits, through its worker if it is running."""
    return _verb(_run_path(run_id, ":cancel"), _run)


def retry_run(run_id: str, payload: Mapping[str, Any] | None = None) -> Call[RunView]:
    """Repeat an ended run as a new run with the same scheduled time, with another payload if one is given. A repeat of
    a success, or with another payload, has an idempotency key of its own. Not repeated after a lost response. A run is
    repeated at most once."""
    return Call("POST", _run_path(run_id, ":retry"), _run, body=_with_payload({}, payload), repeatable=False)


def timeline(run_id: str) -> Call[list[TimelineEntry]]:
    """The states of the run in order, with time, attempt, node, worker and reason."""
    return Call("GET", _run_path(run_id, "/timeline"), _timeline)


def why(run_id: str) -> Call[Why]:
    """Why the run is not running, in one sentence."""
    return Call("GET", _run_path(run_id, "/why"), _why)


def logs(run_id: str, attempt: int | None = None) -> Call[str]:
    """The output of the run's latest attempt, or of the given one. `attempt` counts from 1."""
    return Call("GET", _run_path(run_id, "/logs"), _printed, params=_params({"attempt": attempt}))


def overview() -> Call[Overview]:
    """How the system is doing: throughput, lag, queues, workers, and what is wrong."""
    return Call("GET", "/v1/insights/overview", _overview)


def find_ids(part: str, *kinds: str) -> Call[IdList]:
    """The ids that begin or end with `part`. Kinds: run, job, dead_letter, worker; all if none is given. The newest
    100,000 of each are searched."""
    return Call("GET", "/v1/ids", _id_list, params=_params({"part": part, "kind": ",".join(kinds) or None}))


def queues() -> Call[QueueList]:
    """All queues with depth, oldest run and rate."""
    return Call("GET", "/v1/queues", _queue_list)


def limits(*, q: str | None = None, limit: int | None = None, cursor: str | None = None) -> Call[LimitList]:
    """One page of limits, by name. `q`: a part of the name."""
    return Call("GET", "/v1/limits", _limit_list, params=_params({"q": q, "limit": limit, "cursor": cursor}))


def limit(limit_id: int) -> Call[LimitDetails]:
    """A limit with its lines: who has its slots, and how many runs wait."""
    return Call("GET", f"/v1/limits/{limit_id}", _limit)


def set_limit(limit_id: int, limit: int | None, *, order: str | None = None) -> Call[LimitDetails]:
    """Set how many runs there may be at once. None returns to what jobs and tasks declare. `order`: "priority" ends
    strict order."""
    return Call("PUT", f"/v1/limits/{limit_id}", _limit, body=encode(LimitRequest(limit, order)))


def queue(name: str) -> Call[QueueView]:
    """The queue `name`."""
    return Call("GET", f"/v1/queues/{segment(name)}", _queue)


def set_queue_limits(
    name: str,
    *,
    concurrency: int | UnsetType | None = UNSET,
    rate: str | UnsetType | None = UNSET,
    burst: int | None = None,
    max_depth: int | UnsetType | None = UNSET,
) -> Call[GateView]:
    """Set limits of a queue: how many runs run at once, how often they start (`"100/m"`, with a `burst`), and how many
    may wait. What is left out stays as it is, and None removes a limit."""
    return _set_limits(f"/v1/queues/{segment(name)}", concurrency, rate, burst, max_depth)


def pause_queue(name: str) -> Call[GateView]:
    """Start no run of the queue until it is resumed. When this returns, no worker is given one any more."""
    return _verb(f"/v1/queues/{segment(name)}:pause", _gate)


def resume_queue(name: str) -> Call[GateView]:
    """Resume a paused queue."""
    return _verb(f"/v1/queues/{segment(name)}:resume", _gate)


def tenant_limits() -> Call[GateView]:
    """The limits of all runs of the tenant."""
    return Call("GET", "/v1/tenant/limits", _gate)


def set_tenant_limits(
    *,
    concurrency: int | UnsetType | None = UNSET,
    rate: str | UnsetType | None = UNSET,
    burst: int | None = None,
    max_depth: int | UnsetType | None = UNSET,
) -> Call[GateView]:
    """Set limits of all runs of the tenant, in addition to those of its queues. See `set_queue_limits`."""
    return _set_limits("/v1/tenant/limits", concurrency, rate, burst, max_depth)


def pause_all(*, all_tenants: bool = False) -> Call[GateView]:
    """Start no run of the tenant, or of all tenants, until `resume_all`."""
    return Call("POST", "/v1/pause", _gate, body=encode(PauseRequest(all_tenants)))


def resume_all(*, all_tenants: bool = False) -> Call[GateView]:
    """Resume what `pause_all` paused. Queues that were paused one by one stay paused."""
    return Call("POST", "/v1/resume", _gate, body=encode(PauseRequest(all_tenants)))


def workers() -> Call[WorkerList]:
    """All workers and what they can run."""
    return Call("GET", "/v1/workers", _worker_list)


def tasks() -> Call[TaskList]:
    """The tasks that workers offer, with their parameters."""
    return Call("GET", "/v1/tasks", _task_list)


def worker(worker_id: str) -> Call[WorkerView]:
    """The worker `worker_id`."""
    return Call("GET", f"/v1/workers/{segment(worker_id)}", _worker)


def drain_worker(worker_id: str) -> Call[WorkerView]:
    """Ask a worker to finish its runs and to shut down."""
    return _verb(f"/v1/workers/{segment(worker_id)}:drain", _worker)


def create_backfill(
    job_id: str, start: When, end: When, *, concurrency: int = 1, order: str = "oldest"
) -> Call[BackfillView]:
    """Make up for the fires of the job from `start` on and before `end`: each becomes a run, unless it has one already.
    At most `concurrency` of these runs are alive at once. `order`: oldest or newest first. Not repeated after a lost
    response."""
    body = encode({"from": _text(start), "to": _text(end), "concurrency": concurrency, "order": order})
    return Call("POST", _job_path(job_id, ":backfill"), _backfill, body=body, repeatable=False)


def read_backfill(backfill_id: str) -> Call[BackfillView]:
    """A backfill and its progress."""
    return Call("GET", _backfill_path(backfill_id), _backfill)


def backfills(
    *, job: str | None = None, state: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[BackfillList]:
    """One page of backfills, newest first: all, those of a job, or those in a state."""
    params = _params({"job": job, "state": state, "limit": limit, "cursor": cursor})
    return Call("GET", "/v1/backfills", _backfill_list, params=params)


def change_backfill(backfill_id: str, concurrency: int) -> Call[BackfillView]:
    """Change how many runs of the backfill are alive at once."""
    return Call("PATCH", _backfill_path(backfill_id), _backfill, body=encode({"concurrency": concurrency}))


def pause_backfill(backfill_id: str) -> Call[BackfillView]:
    """Let the backfill create no more runs. Those that exist continue."""
    return _verb(_backfill_path(backfill_id, ":pause"), _backfill)


def resume_backfill(backfill_id: str) -> Call[BackfillView]:
    """Let the backfill continue."""
    return _verb(_backfill_path(backfill_id, ":resume"), _backfill)


def cancel_backfill(backfill_id: str, *, running: bool = False) -> Call[BackfillView]:
    """End the backfill, and those of its runs that no worker has taken. With `running` also the others."""
    return Call("POST", _backfill_path(backfill_id, ":cancel"), _backfill, body=encode({"running": running}))


def breakers() -> Call[BreakerList]:
    """The circuit breakers of jobs and tasks, open ones first."""
    return Call("GET", "/v1/breakers", _breaker_list)


def reset_breaker(breaker_id: str | int) -> Call[BreakerView]:
    """Close a circuit breaker and forget its failures."""
    return _verb(f"/v1/breakers/{segment(str(breaker_id))}:reset", _breaker)


def dead_letters(
    *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[DeadLetterFilters]
) -> Call[DeadLetterList]:
    """One page of dead letters, newest first."""
    params = _params({**filters, "limit": limit, "cursor": cursor})
    return Call("GET", "/v1/dead-letters", _dead_letter_list, params=params)


def dead_letter(run_id: str) -> Call[DeadLetterView]:
    """One dead letter, with its payload and the error of each attempt."""
    return Call("GET", _letter_path(run_id), _dead_letter)


def replay(run_id: str, payload: Mapping[str, Any] | None = None) -> Call[RunView]:
    """Repeat a dead letter as a new run with the same scheduled time, with another payload if one is given. Not
    repeated after a lost response. A dead letter is replayed at most once."""
    return Call("POST", _letter_path(run_id, ":replay"), _run, body=_with_payload({}, payload), repeatable=False)


def replay_dead_letters(
    payload: Mapping[str, Any] | None = None,
    *,
    all: bool = False,
    limit: int | None = None,
    **filters: Unpack[DeadLetterFilters],
) -> Call[Replayed]:
    """Repeat the dead letters that match the filters, or `all` of them. At most 100,000 per call."""
    body = _with_payload(_choice(filters, everything=all, limit=limit), payload)
    return Call("POST", "/v1/dead-letters:replay", _replayed, body=body, repeatable=False)


def discard(run_id: str) -> Call[Discarded]:
    """Discard a dead letter. Its run stays in the history."""
    return _verb(_letter_path(run_id, ":discard"), _discarded, repeatable=False)


def discard_dead_letters(
    *,
    all: bool = False,
    limit: int | None = None,
    **filters: Unpack[DeadLetterFilters],
) -> Call[Discarded]:
    """Discard the dead letters that match the filters, or `all` of them. At most 100,000 per call."""
    body = encode(_choice(filters, everything=all, limit=limit))
    return Call("POST", "/v1/dead-letters:discard", _discarded, body=body, repeatable=False)


def tenants() -> Call[TenantList]:
    """All tenants for the operator (an admin of the tenant `default`), otherwise the own tenant."""
    return Call("GET", "/v1/tenants", _tenant_list)


def add_tenant(name: str) -> Call[TenantMade]:
    """Create a tenant. The response contains its first admin token, which is not shown again."""
    return Call("POST", "/v1/tenants", _tenant_made, body=encode({"name": name}), repeatable=False)


def tokens() -> Call[TokenList]:
    """The tenant's tokens, without their secrets."""
    return Call("GET", "/v1/tokens", _token_list)


def add_token(
    name: str,
    role: str,
    *,
    tenants: str | None = None,
    tenant: str | None = None,
    expires_in: str | float | None = None,
) -> Call[TokenMade]:
    """Create a token with role "admin" or "worker". tenants="all" is for workers that take runs of every tenant.
    tenant="name" is for another tenant, which only the operator can do. The response contains the secret, which is not
    shown again."""
    given = {"name": name, "role": role, "tenants": tenants, "tenant": tenant, "expires_in": expires_in}
    body = encode({field: value for field, value in given.items() if value is not None})
    return Call("POST", "/v1/tokens", _token_made, body=body, repeatable=False)


def revoke_token(token_id: str) -> Call[TokenView]:
    """Revoke a token. It is rejected from now on."""
    return _verb(f"/v1/tokens/{segment(token_id)}:revoke", _token)


def health() -> Call[Health]:
    """Check whether the server is up."""
    return Call("GET", "/healthz", _health)


def readiness() -> Call[Readiness]:
    """Check whether the server makes progress. Otherwise it answers 503 with the failed checks."""
    return Call("GET", "/readyz", _readiness, also_read=frozenset({503}))


def declare(application: str, declaration: DeclarationRequest) -> Call[DeclarationView]:
    """Declare which schedules the code of an application has. Workers call it when they start."""
    path = f"/v1/applications/{segment(application)}"
    return Call("PUT", path, _declaration, body=encode(declaration))


def _job_path(job_id: str, rest: str = "") -> str:
    return f"/v1/jobs/{segment(job_id)}{rest}"


def _run_path(run_id: str, rest: str = "") -> str:
    return f"/v1/runs/{segment(run_id)}{rest}"


def _backfill_path(backfill_id: str, rest: str = "") -> str:
    return f"/v1/backfills/{segment(backfill_id)}{rest}"


def _letter_path(run_id: str, rest: str = "") -> str:
    return f"/v1/dead-letters/{segment(run_id)}{rest}"


def _choice(filters: DeadLetterFilters, *, everything: bool, limit: int | None) -> dict[str, Any]:
    given = {**filters, "all": everything or None, "limit": limit}
    return {
        name: _text(value) if isinstance(value, datetime) else value
        for name, value in given.items()
        if value is not None
    }


def _with_payload(body: dict[str, Any], payload: Mapping[str, Any] | None) -> bytes:
    return encode(body if payload is None else {**body, "payload": payload})


def _set_limits(
    path: str,
    concurrency: int | UnsetType | None,
    rate: str | UnsetType | None,
    burst: int | None,
    max_depth: int | UnsetType | None,
) -> Call[GateView]:
    if burst is not None and not isinstance(rate, str):
        raise InvalidInput("a burst belongs to a rate", field="burst", hint='give both: rate="100/m", burst=20')
    wanted = RateRequest(rate, burst) if isinstance(rate, str) and burst is not None else rate
    return Call("PUT", path, _gate, body=encode(GateRequest(concurrency, wanted, max_depth)))


def _verb(path: str, read: Any, *, repeatable: bool = True) -> Call[Any]:
    return Call("POST", path, read, body=b"{}", repeatable=repeatable)


def _run_page(answer: Answer) -> RunList:
    return RunList(runs=_run_array(answer), next=next_cursor(answer))


def _timeline_page(answer: Answer) -> JobTimeline:
    return JobTimeline(entries=_timeline_entries(answer), next=next_cursor(answer))


def _printed(answer: Answer) -> str:
    return answer.content.decode("utf-8", "replace")


def _params(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _text(value)) for name, value in given.items() if value is not None)


def _text(value: Any) -> str:
    return rfc3339(value) if isinstance(value, datetime) else str(value)
