"""Messages about workflows: jobs whose runs are graphs of steps."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mainspring.wire.field_structs import with_kind_fields, with_plain_fields
from mainspring.wire.formats import ChosenJobId, DurationIn, KeptSizeIn, Name, ScheduleText
from mainspring.wire.jobs import MisfireIn, MisfireView, ResourceLimitsIn, RetryIn
from mainspring.wire.limits import CircuitBreakerIn, ConcurrencyIn, RateLimitIn, RateText
from mainspring.wire.runs import Creator, RunBrief
from mainspring.wire.schedules import ScheduleChange, ScheduleIn
from mainspring.wire.secrets import SecretName, Variables
from mainspring.wire.states import (
    DeliveryWord,
    JobStatusWord,
    MisfireWord,
    OverlapWord,
    PriorityIn,
    PriorityWord,
    RunStateWord,
    SandboxWord,
    ScheduleType,
    Trigger,
    words,
)
from mainspring.wire.states import OnDeadlineWord as OnDeadlineWord

LONGEST_STEP_NAME = 100
MAX_STEPS = 100_000
MAX_MEMBERS = 1_000_000
RULES = ("all_success", "all_done", "one_success", "one_failed")
UPSTREAM_FAILURES = ("skip", "fail")
DEFINITIONS = ("fired", "current")
FIELD_TYPES = ("string", "number", "integer", "boolean")
ON_TIMEOUT = ("fail", "skip", "continue")

StepName = Annotated[str, Meta(min_length=1, max_length=LONGEST_STEP_NAME, pattern=r"^[A-Za-z0-9._-]+$")]
StepRuleWord = Annotated[str, words("StepRule", *RULES)]
UpstreamFailureWord = Annotated[str, words("UpstreamFailure", *UPSTREAM_FAILURES)]
OnTimeoutWord = Annotated[str, words("OnTimeout", *ON_TIMEOUT)]
DefinitionWord = Annotated[str, words("RerunDefinition", *DEFINITIONS)]
Count = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": MAX_MEMBERS})]
AtLeastOne = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MAX_MEMBERS})]


class MapIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The step runs once for each member, at most 1,000,000 of them. Exactly one of over, range, workers. over: a list,
    or {"$from": step, "path": ...} or {"$parameter": name} whose value is a list. range: a number, [start, stop] or
    [start, stop, step]. workers: labels; one member on each live worker that has them. max_parallel: how many members
    are alive at once. max_failures: more failed members than this fail the step early, and the rest is skipped."""

    over: msgspec.Raw = msgspec.Raw()
    range: int | list[int] | None = None
    workers: dict[str, str] | None = None
    max_parallel: AtLeastOne | None = None
    max_failures: Count | None = None


class ApprovalFieldIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What who approves fills in. type: of the value. options: the values that it may have."""

    type: Annotated[str, words("ApprovalField", *FIELD_TYPES)] = "string"
    required: bool = True
    title: str | None = None
    options: list[str | int | float] | None = None


class WaitIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a step waits for without a slot: the approval of a person, or an event. by: who may decide: role:ROLE (or an
    admin), user:NAME or token:NAME. fields: what is filled in; it is in the result of the step. details: what is shown
    to who decides; it may have references. key: of the event, without it an event that has none; it may be a reference.
    since: an event that came up to so long before the wait counts, 5 minutes by default. timeout: how long it waits.
    on_timeout: whether the step is FAILED then, SKIPPED, or SUCCESS."""

    approval: Name | None = None
    event: Name | None = None
    key: Name | dict[str, Any] | None = None
    since: DurationIn | dict[str, Any] | None = None
    by: list[str] | None = None
    fields: dict[str, ApprovalFieldIn] | None = None
    details: Any = None
    timeout: DurationIn | dict[str, Any] | None = None
    on_timeout: OnTimeoutWord | None = None


class CallbackIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """The service that the step calls may answer 202, and send its result to the address in the header
    Mainspring-Callback-Url later. timeout: how long the step waits for it. on_timeout: as of a wait."""

    timeout: DurationIn | None = None
    on_timeout: OnTimeoutWord | None = None


@with_plain_fields("given", after="timeout")
@with_kind_fields("given", after="job_type")
class StepIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A step of a workflow: a job without a schedule, and what it waits for. sleep: the step runs nothing and takes
    so long, or until a time ({"until": ...}), without a slot. wait: the same for what it names. callback: its service
    may answer later. workflow: the step runs this workflow with these parameters, and waits for that run, without a
    slot. Its payload, or these parameters, may have references: {"$from": step, "path": "a.0"}, {"$parameter": name},
    in members of a map {"$item": path}, {"$index": true} and {"$total": true}. {"$literal": ...} is taken as it is.
    depends_on: names of steps. rule: which ends of these start it. on_upstream_failure: whether it is SKIPPED or
    FAILED when the rule cannot be met."""

    name: StepName
    task: Name | None = None
    job_type: Name | None = None
    payload: msgspec.Raw = msgspec.Raw()
    sleep: DurationIn | dict[str, Any] | None = None
    wait: WaitIn | None = None
    workflow: ChosenJobId | None = None
    parameters: dict[str, Any] | None = None
    callback: CallbackIn | None = None
    depends_on: list[str] | None = None
    rule: StepRuleWord | None = None
    on_upstream_failure: UpstreamFailureWord | None = None
    map: MapIn | None = None
    keep_payload: KeptSizeIn | None = None
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
    concurrency: bool | int | ConcurrencyIn | list[ConcurrencyIn] | None = None
    rate_limit: bool | RateText | RateLimitIn | list[RateLimitIn] | None = None
    rate: RateText | None = None
    circuit_breaker: bool | CircuitBreakerIn | None = None
    delivery: DeliveryWord | None = None
    owner: str | None = None
    description: str | None = None
    labels: dict[str, str] | None = None


class WorkflowRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/workflows`. Without a schedule it runs by `:runNow` alone; "now" runs it once, at once.
    timeout: the timeout of a whole run. queue, priority: the defaults of steps that do not name their own. parameters:
    the names that {"$parameter": ...} may use, and their values unless a run is given others."""

    steps: list[StepIn]
    workflow_id: ChosenJobId | None = None
    name: Name | None = None
    schedule: ScheduleText | ScheduleIn | None = None
    misfire: MisfireWord | MisfireIn | None = None
    overlap: OverlapWord | None = None
    timeout: DurationIn | None = None
    queue: Name | None = None
    priority: PriorityIn | None = None
    owner: str | None = None
    description: str | None = None
    labels: dict[str, str] | None = None
    parameters: dict[str, Any] | None = None
    idempotency_key: Name | None = None
    declared_by: ChosenJobId | None = None


class WorkflowPatch(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT` and `PATCH /v1/workflows/{id}`: any subset of fields. null resets a field to its default. steps
    and parameters replace all of them. Runs that have fired keep the definition that they were fired with."""

    steps: list[StepIn] | UnsetType = UNSET
    name: Name | UnsetType | None = UNSET
    schedule: ScheduleText | ScheduleChange | UnsetType = UNSET
    misfire: MisfireWord | MisfireIn | UnsetType | None = UNSET
    overlap: OverlapWord | UnsetType | None = UNSET
    timeout: DurationIn | UnsetType | None = UNSET
    queue: Name | UnsetType | None = UNSET
    priority: PriorityIn | UnsetType | None = UNSET
    owner: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    labels: dict[str, str] | UnsetType | None = UNSET
    parameters: dict[str, Any] | UnsetType | None = UNSET
    declared_by: ChosenJobId | UnsetType | None = UNSET


class WorkflowCreated(msgspec.Struct, omit_defaults=True):
    """generation, warnings: left out for the first one and if there are none, as of jobs."""

    workflow_id: str
    generation: int = 1
    warnings: list[str] = []


class WorkflowCheck(msgspec.Struct):
    """The response to `POST /v1/workflows:validate`: the definition is valid. layers: the steps of the longest chain.
    first, last: names of steps without parents and without dependants, at most 100. warnings: sentences about what may
    not be meant, such as a task that no worker offers."""

    steps: int
    edges: int
    layers: int
    first: list[str]
    last: list[str]
    warnings: list[str] = []


class WorkflowView(msgspec.Struct):
    """A workflow. The fields are those of its job and of its definition. steps: as they were given; in a list they are
    left out. step_count: how many there are. definition_version: rises with each change of what a run does; `version`
    rises with each change, for If-Match. warnings: only in the answer to a change, as of a job."""

    workflow_id: str
    name: str
    status: JobStatusWord
    schedule_type: ScheduleType
    schedule: str
    schedule_in_words: str
    timezone: str | None
    misfire: MisfireView
    overlap: OverlapWord
    timeout: float | None
    queue: str
    priority: PriorityWord
    owner: str | None
    description: str | None
    labels: dict[str, str]
    parameters: dict[str, Any]
    step_count: int
    next_fire_at: datetime | None
    last_fired_for: datetime | None
    version: int
    definition_version: int
    created_at: datetime
    updated_at: datetime
    generation: int = 1
    calendar: str | None = None
    declared_by: str | None = None
    created_by: Creator | None = None
    pause_reason: str | None = None
    idempotency_key: str | None = None
    latest_run: RunBrief | None = None
    steps: list[StepIn] = []
    warnings: list[str] | UnsetType = UNSET


class WorkflowList(msgspec.Struct):
    """A page of workflows. `searched_to`: as of a page of jobs."""

    workflows: list[WorkflowView]
    next: str | None = None
    searched_to: datetime | None = None


class WorkflowRunNow(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/workflows/{id}:runNow`. It may be empty. parameters: values for this run; the others keep
    those of the workflow."""

    parameters: dict[str, Any] | None = None
    idempotency_key: Name | None = None


class WorkflowRerun(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"from_": "from"}):
    """The body of `POST /v1/workflow-runs/{run}:rerun`. It may be empty. from: the step that runs again, with all that
    follows it; without it, the steps that did not succeed and what follows them. definition: whether these steps take
    their settings from the definition that the run was fired with, or from the current one, which must have the same
    steps with the same dependencies."""

    from_: StepName | None = None
    definition: DefinitionWord = "fired"


class WorkflowRunCancel(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/workflow-runs/{run}:cancel`. It may be empty."""

    reason: str | None = None


class MapProgress(msgspec.Struct):
    """The members of a mapped step. total: null while it is not known. created: how many have a run by now."""

    total: int | None
    created: int
    succeeded: int
    failed: int
    skipped: int

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.skipped


class StepRunView(msgspec.Struct, omit_defaults=True):
    """A step in a workflow run, by its latest run. The fields are those of a run. run_id, status: null before the step
    has a run. rerun: in which rerun of the workflow run this run of the step was made; 0 for the first. map: the
    progress of a mapped step. index: the index of a member of a map; index and total are what its payload may use.
    wakes_at: of a step that waits without a slot, when its sleep or its timeout is over. child_run_id: the workflow run
    that a step with `workflow` has started."""

    name: str
    task: str
    status: RunStateWord | None
    run_id: str | None
    reason: str | None = None
    attempt_number: int = 0
    max_attempts: int = 0
    created_at: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    duration: float | None = None
    error_message: str | None = None
    rerun: int = 0
    depends_on: list[str] = []
    map: MapProgress | None = None
    index: int | None = None
    wakes_at: datetime | None = None
    child_run_id: str | None = None


class StepRunList(msgspec.Struct):
    steps: list[StepRunView]
    next: str | None = None


class WorkflowRunFields(msgspec.Struct):
    """What a list of workflow runs and one workflow run show. definition_version: the version of the definition with
    which it was fired."""

    run_id: str
    workflow_id: str
    name: str
    status: RunStateWord
    reason: str | None
    trigger: Trigger
    scheduled_for: datetime
    created_at: datetime
    start_time: datetime | None
    end_time: datetime | None
    duration: float | None
    definition_version: int
    generation: int
    step_count: int


class WorkflowRunBrief(WorkflowRunFields):
    """A run of a workflow in a list. definition_version: the version of the definition with which it was fired. counts:
    how many of its steps are in each state; of a run that has not been started, none. reruns: how often parts of it ran
    again. parent_run_id: the workflow run of which a step has started it."""

    counts: dict[str, int] = {}
    reruns: int = 0
    parent_run_id: str | None = None


class WorkflowRunList(msgspec.Struct):
    runs: list[WorkflowRunBrief]
    next: str | None = None


class WorkflowRunView(WorkflowRunFields):
    """A run of a workflow with its steps, in the order of the definition. edges: [parent, step], for the steps that are
    shown. next: the cursor of `/steps` where further steps begin; a run is shown with up to 1,000 of them,
    and with fewer if they have very many parents. etag: for If-Match. parent_run_id: as in a list."""

    parameters: dict[str, Any]
    counts: dict[str, int] = {}
    reruns: int = 0
    steps: list[StepRunView] = []
    edges: list[list[str]] = []
    next: str | None = None
    etag: str = ""
    parent_run_id: str | None = None
