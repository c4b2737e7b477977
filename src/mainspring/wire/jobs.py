"""Messages about jobs: requests to create or change one, and the view of a job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from mainspring.wire.execution import ResourceLimits
from mainspring.wire.field_structs import with_kind_fields, with_plain_fields
from mainspring.wire.fields import PlainValues
from mainspring.wire.file_owner import FileOwner
from mainspring.wire.formats import (
    ChosenJobId,
    Cron,
    DurationIn,
    KeptSizeIn,
    Moment,
    Name,
    ScheduleText,
    SizeIn,
    TimeZone,
)
from mainspring.wire.kind_fields import ShownCalls
from mainspring.wire.limits import (
    CircuitBreakerIn,
    CircuitBreakerView,
    ConcurrencyIn,
    ConcurrencyView,
    RateLimitIn,
    RateLimitView,
    RateText,
)
from mainspring.wire.rules import JobNotify, NotifyIn
from mainspring.wire.runs import Creator, RunBrief
from mainspring.wire.schedules import DstView, ScheduleChange, ScheduleIn
from mainspring.wire.secrets import SecretName, Variables
from mainspring.wire.states import (
    BackoffWord,
    DeliveryWord,
    HealthWord,
    JobStatusWord,
    MisfireWord,
    OnUpstreamFailureWord,
    OutsideWord,
    OverlapWord,
    PriorityIn,
    PriorityWord,
    RuleWord,
    RunStateWord,
    SandboxWord,
    ScheduleType,
    TriggerRuleWord,
)
from mainspring.wire.states import OnDeadlineWord as OnDeadlineWord
from mainspring.wire.unique import Unique, UniqueAnswerWord, UniqueIn


class RetryRuleIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What follows a failure of a certain kind. Exactly one of error (a class name), exit_code and http_status (a
    number or "5xx") is given. then: "retry" or "give_up". after: the shortest delay of the retry."""

    error: str | list[str] | None = None
    exit_code: int | list[int] | None = None
    http_status: int | str | list[int | str] | None = None
    then: RuleWord | None = None
    after: DurationIn | None = None


class RetryIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How failed attempts are retried."""

    max_attempts: int | None = None
    backoff: BackoffWord | None = None
    base: DurationIn | None = None
    cap: DurationIn | None = None
    jitter: float | None = None
    rules: list[RetryRuleIn] | None = None


class ResourceLimitsIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the processes of one attempt may use together. Sizes are bytes, or text such as "512MB"."""

    memory: SizeIn | None = None
    cpu: DurationIn | None = None
    processes: int | None = None
    files: int | None = None
    output: SizeIn | None = None
    disk: SizeIn | None = None


class MisfireIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to fires that became due while no server could fire them."""

    policy: MisfireWord | None = None
    grace: DurationIn | None = None
    cap: int | None = None


@with_plain_fields("given", after="timeout")
@with_kind_fields("given", after="job_type")
class JobRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/jobs`. It has the fields of the full form and of the short forms."""

    job_id: ChosenJobId | None = None
    name: Name | None = None
    task: Name | None = None
    job_type: Name | None = None
    payload: msgspec.Raw = msgspec.Raw()
    keep_payload: KeptSizeIn | None = None
    schedule: ScheduleText | ScheduleIn | None = None
    schedule_type: ScheduleType | None = None
    schedule_time: Moment | None = None
    cron_expression: Cron | None = None
    cron: Cron | None = None
    timezone: TimeZone | None = None
    delay: DurationIn | None = None
    queue: Name | None = None
    priority: PriorityIn | None = None
    timeout: DurationIn | None = None
    kill_grace: DurationIn | None = None
    env: Variables | None = None
    secrets: list[SecretName] | None = None
    limits: ResourceLimitsIn | None = None
    sandbox: SandboxWord | None = None
    run_as: str | None = None
    required_labels: dict[str, str] | None = None
    retry: RetryIn | None = None
    retry_policy: RetryIn | None = None
    retries: int | None = None
    max_retries: int | None = None
    misfire: MisfireIn | None = None
    overlap: OverlapWord | None = None
    concurrency: bool | int | ConcurrencyIn | list[ConcurrencyIn] | None = None
    rate_limit: bool | RateText | RateLimitIn | list[RateLimitIn] | None = None
    rate: RateText | None = None
    circuit_breaker: bool | CircuitBreakerIn | None = None
    delivery: DeliveryWord | None = None
    idempotency_key: Name | None = None
    unique: bool | UniqueIn | None = None
    owner: str | None = None
    description: str | None = None
    labels: dict[str, str] | None = None
    search: list[str] | None = None
    declared_by: ChosenJobId | None = None
    depends_on: list[str] | None = None
    dependencies: list[str] | None = None
    rule: TriggerRuleWord | None = None
    on_upstream_failure: OnUpstreamFailureWord | None = None
    notify: list[NotifyIn] | None = None


@with_plain_fields("changed", after="timeout")
@with_kind_fields("changed", after="job_type")
class JobPatch(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT` and `PATCH /v1/jobs/{id}`: any subset of fields. null resets a field to its default, which is
    the option that the task declares, or else the default of Mainspring."""

    name: Name | UnsetType | None = UNSET
    task: Name | UnsetType = UNSET
    job_type: Name | UnsetType = UNSET
    payload: msgspec.Raw = msgspec.Raw()
    keep_payload: KeptSizeIn | UnsetType | None = UNSET
    schedule: ScheduleText | ScheduleChange | UnsetType = UNSET
    schedule_type: ScheduleType | UnsetType | None = UNSET
    schedule_time: Moment | UnsetType | None = UNSET
    cron_expression: Cron | UnsetType | None = UNSET
    cron: Cron | UnsetType | None = UNSET
    timezone: TimeZone | UnsetType | None = UNSET
    delay: DurationIn | UnsetType | None = UNSET
    queue: Name | UnsetType | None = UNSET
    priority: PriorityIn | UnsetType | None = UNSET
    timeout: DurationIn | UnsetType | None = UNSET
    kill_grace: DurationIn | UnsetType | None = UNSET
    env: Variables | UnsetType | None = UNSET
    secrets: list[SecretName] | UnsetType | None = UNSET
    limits: ResourceLimitsIn | UnsetType | None = UNSET
    sandbox: SandboxWord | UnsetType | None = UNSET
    run_as: str | UnsetType | None = UNSET
    required_labels: dict[str, str] | UnsetType | None = UNSET
    retry: RetryIn | UnsetType | None = UNSET
    retry_policy: RetryIn | UnsetType | None = UNSET
    retries: int | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    misfire: MisfireIn | UnsetType | None = UNSET
    overlap: OverlapWord | UnsetType | None = UNSET
    concurrency: bool | int | ConcurrencyIn | list[ConcurrencyIn] | UnsetType | None = UNSET
    rate_limit: bool | RateText | RateLimitIn | list[RateLimitIn] | UnsetType | None = UNSET
    rate: RateText | UnsetType = UNSET
    circuit_breaker: bool | CircuitBreakerIn | UnsetType | None = UNSET
    delivery: DeliveryWord | UnsetType | None = UNSET
    owner: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    labels: dict[str, str] | UnsetType | None = UNSET
    search: list[str] | UnsetType | None = UNSET
    declared_by: ChosenJobId | UnsetType | None = UNSET
    depends_on: list[str] | UnsetType | None = UNSET
    dependencies: list[str] | UnsetType | None = UNSET
    rule: TriggerRuleWord | UnsetType | None = UNSET
    on_upstream_failure: OnUpstreamFailureWord | UnsetType | None = UNSET
    notify: list[NotifyIn] | UnsetType | None = UNSET


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a verb that takes no fields: {}, or no body at all."""


class JobCreated(msgspec.Struct, omit_defaults=True):
    """generation: left out for the first one. unique: what became of the submission, if another job has its unique key;
    job_id is that job then. warnings: sentences about what may not be meant, such as a task that no worker offers; left
    out if there are none."""

    job_id: str
    generation: int = 1
    unique: UniqueAnswerWord | None = None
    warnings: list[str] = []


class BatchCreated(msgspec.Struct, omit_defaults=True):
    """The response to `POST /v1/jobs:batch`. job_ids are in the order of the request. unique: in the same order, what
    became of each submission whose unique key another job has; left out if there is none. warnings: as of one job."""

    accepted: int
    job_ids: list[str]
    unique: list[UniqueAnswerWord | None] = []
    warnings: list[str] = []


class RetryRuleView(msgspec.Struct, omit_defaults=True):
    then: RuleWord
    error: list[str] | None = None
    exit_code: list[int] | None = None
    http_status: list[int | str] | None = None
    after: float | None = None


class RetryView(msgspec.Struct):
    max_attempts: int
    backoff: BackoffWord
    base: float
    cap: float
    jitter: float
    rules: list[RetryRuleView] = []


class MisfireView(msgspec.Struct):
    policy: MisfireWord
    grace: float | None
    cap: int


class JobHealth(msgspec.Struct, omit_defaults=True):
    """How a job that can fire again does. healthy: its last run succeeded. late: a run of it started late, takes too
    long or missed its deadline. failing: its last run failed. silent: it should have fired and has not, or a run of it
    is ready for an hour. never_ran: no run of it has ended yet. expected_duration: in seconds, learned from the last 20
    runs that succeeded."""

    state: HealthWord
    since: datetime
    reason: str | None = None
    expected_duration: float | None = None


@with_kind_fields("value", after="updated_at")
@with_plain_fields("value", after="updated_at")
class JobView(ShownCalls, PlainValues, msgspec.Struct):
    """A job as clients see it. Durations are in seconds. keep_payload: whether the payload stays with a run that has
    succeeded, or up to how many bytes. declared_by: the application whose code declares the schedule. created_by: the
    token that created it; null if it was SQL. pause_reason: why the job is PAUSED, unless a person paused it.
    latest_run: its newest run; of a one-time job that has fired, the run that its status tells of. error_message: the
    error of the last attempt of that run, in a list its first 2,000 characters. generation: how many jobs with this
    job_id there have been. A job that is created with the job_id of an ended one is the next generation of it.
    schedule_in_words: when the job runs, with the values that `H` has. runs_left: how many runs of max_runs are left.
    calendar_version: the version of the calendar that decided next_fire_at. outside: what happens to a fire at a time
    that the calendar excludes. workflow_version: the job is a workflow, with this version of its definition (GET
    /v1/workflows/{job_id}); its payload are the parameters. after: the jobs after whose success it fires. depends_on:
    the jobs for whose runs its own runs wait. rule: which ends of these start it. on_upstream_failure: whether its run
    is SKIPPED or FAILED when the rule cannot be met. notify: which channels are told of which of its events.
    schedule_time: of a one-time job, the time that was asked for; if it had passed when a change asked for it, the job
    fires for the time of the change. search: the values of the payload by which its runs are found. owned_by: the job
    files that say what the job is; not in lists. warnings: only in
    the answer to a change, sentences about what may not be meant, such as a recurring job that now fires once. health:
    how a job that can fire again does; null for others and in answers to changes."""

    job_id: str
    name: str
    task: str
    command: str | list[str] | None
    schedule_type: ScheduleType
    schedule: str
    status: JobStatusWord
    schedule_time: datetime | None
    cron_expression: Cron | None
    timezone: TimeZone | None
    every: float | None
    payload: Any
    max_retries: int
    retry: RetryView
    timeout: float
    misfire: MisfireView
    overlap: OverlapWord
    delivery: DeliveryWord
    idempotency_key: str | None
    owner: str | None
    description: str | None
    labels: dict[str, str]
    queue: str
    priority: PriorityWord
    next_fire_at: datetime | None
    last_fired_for: datetime | None
    shard_id: int | None
    version: int
    created_at: datetime
    updated_at: datetime
    kill_grace: float | None = None
    env: Variables = {}
    secrets: list[str] = []
    limits: ResourceLimits | None = None
    sandbox: str | None = None
    run_as: str | None = None
    required_labels: dict[str, str] = {}
    latest_run: RunBrief | None = None
    health: JobHealth | None = None
    error_message: str | None = None
    keep_payload: bool | int = False
    declared_by: str | None = None
    created_by: Creator | None = None
    pause_reason: str | None = None
    generation: int = 1
    concurrency: list[ConcurrencyView] = []
    rate_limit: list[RateLimitView] = []
    circuit_breaker: CircuitBreakerView | None = None
    unique: Unique | None = None
    rrule: str | None = None
    exdates: list[datetime] = []
    jitter: float | None = None
    start: datetime | None = None
    end: datetime | None = None
    max_runs: int | None = None
    runs_left: int | None = None
    schedule_in_words: str = ""
    dst: DstView | None = None
    calendar: str | None = None
    calendar_version: int | None = None
    outside: OutsideWord | None = None
    workflow_version: int | None = None
    after: list[str] = []
    depends_on: list[str] = []
    search: list[str] = []
    rule: TriggerRuleWord | None = None
    on_upstream_failure: OnUpstreamFailureWord | None = None
    notify: list[JobNotify] = []
    owned_by: FileOwner | None = None
    warnings: list[str] | UnsetType = UNSET


class JobList(msgspec.Struct):
    """A page of jobs. `searched_to`: the page is short because a filter matches few of very many jobs; those that were
    created since then have been searched, and `next` continues there."""

    jobs: list[JobView]
    next: str | None = None
    searched_to: datetime | None = None


class JobListRow(msgspec.Struct):
    """A job as a list with `view=row` shows it: without payload, command and policies. The fields are those of a job.
    Errors are cut after 200 characters."""

    job_id: str
    name: str
    task: str
    queue: str
    priority: PriorityWord
    status: JobStatusWord
    health: JobHealth | None
    schedule_type: ScheduleType
    schedule: str
    schedule_in_words: str
    timezone: TimeZone | None
    next_fire_at: datetime | None
    last_fired_for: datetime | None
    latest_run: RunBrief | None
    error_message: str | None
    pause_reason: str | None
    owner: str | None
    labels: dict[str, str]
    declared_by: str | None
    created_by: Creator | None
    workflow_version: int | None
    version: int
    generation: int
    created_at: datetime
    updated_at: datetime


class JobRows(msgspec.Struct):
    """The response to `GET /v1/jobs?view=row`."""

    jobs: list[JobListRow]
    next: str | None = None
    searched_to: datetime | None = None


class Upcoming(msgspec.Struct):
    """The next fire times of a job, if it is neither paused nor changed."""

    job_id: str
    fires: list[datetime]


class RunNowRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/jobs/{id}:runNow`. It may be empty. payload: instead of the job's own. idempotency_key: a
    repeat of the request with this key and for this job creates no second run."""

    payload: msgspec.Raw = msgspec.Raw()
    idempotency_key: Name | None = None


class RunNowAccepted(msgspec.Struct):
    """The response to `POST /v1/jobs/{id}:runNow`: the run and its status. SKIPPED if another run of the job is alive
    and the job does not overlap. replay_of: the run that it repeats, if the job was to run once and has fired. A repeat
    of a request has no status when the run is no longer in the history. does_not_wait_for: the jobs that it
    depends on; a manual run starts without them. warnings: of a workflow, as when
    it is created."""

    run_id: str
    job_id: str
    status: RunStateWord | None = None
    reason: str | None = None
    replay_of: str | None = None
    does_not_wait_for: list[str] = []
    warnings: list[str] = []
