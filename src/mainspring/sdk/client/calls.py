"""The vocabulary of the client: one function per route, giving the `Call` that a face sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

from mainspring.kernel.ids import uuid7
from mainspring.sdk.app.context import rfc3339
from mainspring.sdk.client.core import Answer, Call, encode, json_of, next_cursor
from mainspring.sdk.client.job_fields import JobChanges, JobFields, When, job_patch, job_request
from mainspring.wire.access import TenantList, TenantMade, TokenList, TokenMade, TokenView
from mainspring.wire.jobs import BatchCreated, JobCreated, JobList, JobView, MissedRange, RunNowAccepted, Upcoming
from mainspring.wire.runs import (
    DeadLetterList,
    DeadLetterView,
    Discarded,
    Health,
    JobStatus,
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
    status: str | None
    label: str | None
    queue: str | None
    owner: str | None
    q: str | None
    limit: int | None
    cursor: str | None


class RunFilters(TypedDict, total=False):
    status: str | None
    job: str | None
    queue: str | None
    task: str | None
    error: str | None
    since: When | None
    until: When | None
    limit: int | None
    cursor: str | None


class DeadLetterFilters(TypedDict, total=False):
    """Which dead letters; `error` searches error messages, `since` and `until` are about the moment of death."""

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
_run_now = json_of(RunNowAccepted)
_run = json_of(RunView)
_run_list = json_of(RunList)
_run_array = json_of(list[RunView])
_why = json_of(Why)
_queue = json_of(QueueView)
_queue_list = json_of(QueueList)
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
_health = json_of(Health)
_readiness = json_of(Readiness)


def submit(**fields: Unpack[JobFields]) -> Call[JobCreated]:
    """Create a job. Without an idempotency key it gets one of its own, so that a lost answer can be asked for again."""
    body = job_request(fields)
    body.setdefault("idempotency_key", f"sdk-{uuid7()}")
    return Call("POST", "/v1/jobs", _job_created, body=encode(body))


def add_job(task_id: str, time: When | None = None, payload: Any = None) -> Call[JobCreated]:
    """Run the task `task_id` at `time` (now when None) with `payload`."""
    return submit(task=task_id, at=time, payload=payload)


def submit_batch(jobs: Iterable[JobFields | Mapping[str, Any]]) -> Call[BatchCreated]:
    """Create up to 10,000 jobs, all or nothing. Sent again after a lost answer only when each has its key."""
    bodies = [job_request(fields) for fields in jobs]
    keyed = all("idempotency_key" in body for body in bodies)
    return Call("POST", "/v1/jobs:batch", _batch_created, body=encode({"jobs": bodies}), repeatable=keyed)


def job(job_id: str) -> Call[JobView]:
    """The job `job_id`."""
    return Call("GET", _job_path(job_id), _job)


def jobs(**filters: Unpack[JobFilters]) -> Call[JobList]:
    """One page of the jobs that have yet to fire or will fire again; `label` is "key:value", `q` searches names."""
    return Call("GET", "/v1/jobs", _job_list, params=_params(filters))


def job_status(job_id: str) -> Call[JobStatus]:
    """The job's status and its latest run."""
    return Call("GET", _job_path(job_id, "/status"), _job_status)


def job_runs(job_id: str, *, limit: int | None = None, cursor: str | None = None) -> Call[RunList]:
    """One page of the job's runs, newest first."""
    params = _params({"limit": limit, "cursor": cursor})
    return Call("GET", _job_path(job_id, "/runs"), _run_page, params=params)


def upcoming(job_id: str, n: int = 20) -> Call[Upcoming]:
    """The job's next `n` fire times."""
    return Call("GET", _job_path(job_id, "/upcoming"), _upcoming, params=_params({"n": n}))


def missed(job_id: str) -> Call[list[MissedRange]]:
    """Fires of the job that were not run, as ranges with the reason."""
    return Call("GET", _job_path(job_id, "/missed"), _missed)


def update_job(job_id: str, *, if_version: int | None = None, **changes: Unpack[JobChanges]) -> Call[JobView]:
    """Change any subset of the job's fields; with `if_version`, only when it still has that version."""
    headers = () if if_version is None else (("If-Match", f'"{if_version}"'),)
    body = encode(job_patch(changes))
    # Once applied, the version has moved on: a second sending would be refused although the first went well.
    return Call("PATCH", _job_path(job_id), _job, body=body, headers=headers, repeatable=if_version is None)


def cancel_job(job_id: str) -> Call[JobView]:
    """Cancel the job and its live runs."""
    return Call("DELETE", _job_path(job_id), _job)


def pause(job_id: str) -> Call[JobView]:
    """Stop firing the job until it is resumed."""
    return _verb(_job_path(job_id, ":pause"), _job)


def resume(job_id: str) -> Call[JobView]:
    """Fire the job again, from its next fire time on."""
    return _verb(_job_path(job_id, ":resume"), _job)


def run_now(job_id: str) -> Call[RunNowAccepted]:
    """Run the job once, now, besides its schedule. Not sent again after a lost answer: that could run it twice."""
    return _verb(_job_path(job_id, ":runNow"), _run_now, repeatable=False)


def run(run_id: str) -> Call[RunView]:
    """The run `run_id`."""
    return Call("GET", _run_path(run_id), _run)


def runs(**filters: Unpack[RunFilters]) -> Call[RunList]:
    """One page of runs, newest first; `error` searches error messages."""
    return Call("GET", "/v1/runs", _run_list, params=_params(filters))


def cancel_run(run_id: str) -> Call[RunView]:
    """Cancel one run: at once while it waits, by asking its worker while it runs."""
    return _verb(_run_path(run_id, ":cancel"), _run)


def retry_run(run_id: str, payload: Mapping[str, Any] | None = None) -> Call[RunView]:
    """Repeat any run that ended without success, as a new run for the same fire time."""
    return Call("POST", _run_path(run_id, ":retry"), _run, body=_with_payload({}, payload), repeatable=False)


def timeline(run_id: str) -> Call[list[TimelineEntry]]:
    """Every state of the run with its time, attempt, node, worker and reason, in order."""
    return Call("GET", _run_path(run_id, "/timeline"), _timeline)


def why(run_id: str) -> Call[Why]:
    """Why the run is not running, in a sentence."""
    return Call("GET", _run_path(run_id, "/why"), _why)


def logs(run_id: str, attempt: int | None = None) -> Call[str]:
    """What the run's newest attempt has printed so far, or another one; `attempt` counts from 1."""
    return Call("GET", _run_path(run_id, "/logs"), _printed, params=_params({"attempt": attempt}))


def queues() -> Call[QueueList]:
    """All queues: depth, oldest, rate."""
    return Call("GET", "/v1/queues", _queue_list)


def queue(name: str) -> Call[QueueView]:
    """The queue `name`."""
    return Call("GET", f"/v1/queues/{quote(name, safe='')}", _queue)


def workers() -> Call[WorkerList]:
    """All workers and what they can run."""
    return Call("GET", "/v1/workers", _worker_list)


def tasks() -> Call[TaskList]:
    """The tasks that workers offer, and what they take."""
    return Call("GET", "/v1/tasks", _task_list)


def worker(worker_id: str) -> Call[WorkerView]:
    """The worker `worker_id`."""
    return Call("GET", f"/v1/workers/{quote(worker_id, safe='')}", _worker)


def drain_worker(worker_id: str) -> Call[WorkerView]:
    """Ask a worker to finish what it runs and leave."""
    return _verb(f"/v1/workers/{quote(worker_id, safe='')}:drain", _worker)


def dead_letters(
    *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[DeadLetterFilters]
) -> Call[DeadLetterList]:
    """One page of the runs that failed for good, newest first."""
    params = _params({**filters, "limit": limit, "cursor": cursor})
    return Call("GET", "/v1/dead-letters", _dead_letter_list, params=params)


def dead_letter(run_id: str) -> Call[DeadLetterView]:
    """One run that failed for good, with its payload and every try's error."""
    return Call("GET", _letter_path(run_id), _dead_letter)


def replay(run_id: str, payload: Mapping[str, Any] | None = None) -> Call[RunView]:
    """Repeat a dead letter as a new run for the same fire time, with another payload if one is given. Not sent again
    after a lost answer; a dead letter is replayed once at most."""
    return Call("POST", _letter_path(run_id, ":replay"), _run, body=_with_payload({}, payload), repeatable=False)


def replay_dead_letters(
    payload: Mapping[str, Any] | None = None,
    *,
    all: bool = False,
    limit: int | None = None,
    **filters: Unpack[DeadLetterFilters],
) -> Call[Replayed]:
    """Repeat the dead letters that the filters choose, or `all` of them; up to 100,000 a call."""
    body = _with_payload(_choice(filters, everything=all, limit=limit), payload)
    return Call("POST", "/v1/dead-letters:replay", _replayed, body=body, repeatable=False)


def discard(run_id: str) -> Call[Discarded]:
    """Give up a dead letter; its run stays in the history."""
    return _verb(_letter_path(run_id, ":discard"), _discarded, repeatable=False)


def discard_dead_letters(
    *,
    all: bool = False,
    limit: int | None = None,
    **filters: Unpack[DeadLetterFilters],
) -> Call[Discarded]:
    """Give up the dead letters that the filters choose, or `all` of them; up to 100,000 a call."""
    body = encode(_choice(filters, everything=all, limit=limit))
    return Call("POST", "/v1/dead-letters:discard", _discarded, body=body, repeatable=False)


def tenants() -> Call[TenantList]:
    """All tenants for the operator, an admin of the tenant `default`; otherwise one's own."""
    return Call("GET", "/v1/tenants", _tenant_list)


def add_tenant(name: str) -> Call[TenantMade]:
    """Make a tenant. Its first admin token is in the answer, and nowhere else ever again."""
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
    """Make a token: role "admin" or "worker"; tenants="all" for workers that take runs of every tenant; tenant="name"
    for another tenant than one's own, which the operator may. The secret is in the answer, and nowhere else ever
    again."""
    given = {"name": name, "role": role, "tenants": tenants, "tenant": tenant, "expires_in": expires_in}
    body = encode({field: value for field, value in given.items() if value is not None})
    return Call("POST", "/v1/tokens", _token_made, body=body, repeatable=False)


def revoke_token(token_id: str) -> Call[TokenView]:
    """The token is not valid any more from now on."""
    return _verb(f"/v1/tokens/{quote(token_id, safe='')}:revoke", _token)


def health() -> Call[Health]:
    """Whether the server is up."""
    return Call("GET", "/healthz", _health)


def readiness() -> Call[Readiness]:
    """Whether the server makes progress; one that does not answers 503 and says what is wrong."""
    return Call("GET", "/readyz", _readiness, also_read=frozenset({503}))


def _job_path(job_id: str, rest: str = "") -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}{rest}"


def _run_path(run_id: str, rest: str = "") -> str:
    return f"/v1/runs/{quote(run_id, safe='')}{rest}"


def _letter_path(run_id: str, rest: str = "") -> str:
    return f"/v1/dead-letters/{quote(run_id, safe='')}{rest}"


def _choice(filters: DeadLetterFilters, *, everything: bool, limit: int | None) -> dict[str, Any]:
    given = {**filters, "all": everything or None, "limit": limit}
    return {
        name: _text(value) if isinstance(value, datetime) else value
        for name, value in given.items()
        if value is not None
    }


def _with_payload(body: dict[str, Any], payload: Mapping[str, Any] | None) -> bytes:
    return encode(body if payload is None else {**body, "payload": payload})


def _verb(path: str, read: Any, *, repeatable: bool = True) -> Call[Any]:
    return Call("POST", path, read, body=b"{}", repeatable=repeatable)


def _run_page(answer: Answer) -> RunList:
    return RunList(runs=_run_array(answer), next=next_cursor(answer))


def _printed(answer: Answer) -> str:
    return answer.content.decode("utf-8", "replace")


def _params(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _text(value)) for name, value in given.items() if value is not None)


def _text(value: Any) -> str:
    return rfc3339(value) if isinstance(value, datetime) else str(value)
