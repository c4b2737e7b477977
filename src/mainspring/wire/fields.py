"""The table of the fields of a job. It declares each field and where the field may appear.

Most fields have special rules. Their structs and keywords are written by hand, because type checkers and editors must
see them and because their checks differ. tests/domain/test_fields.py compares them with this table.

The options of `mainspring submit` and `mainspring job edit` are made from the table: a field with a help text has one,
and a field that can be changed later has it in both. cli/field_options.py reads the values by the kind of the field.
Options that say what runs (the task, the command, the HTTP call and the payload) are in cli/task_options.py.

A plain field has no special rules. It is a duration, a whole number, a line of text or a word, and is stored in the
spec and shown unchanged. It is declared only in this file. To add one:

1. add a row to FIELDS with `plain_field(...)`;
2. add a line to PlainValues and one to PlainKeywords below, which type checkers read.

The request, the patch, the options of a task, the stored spec, the view of a job, the keywords of the SDK, the options
of the command line and the lists of `mainspring.submit` are derived from that (wire/field_structs.py,
domain/intake/plain.py, cli/field_options.py, store/submit_fields.py).

This module imports only the standard library and the registry of kinds, because `mainspring --help` imports it and must
not load msgspec.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Flag, auto
from typing import Literal, TypedDict

from mainspring.kinds.registry import TaskKind, refuse_kinds, task_kinds

Duration = str | float | timedelta
OnDeadline = Literal["tell", "cancel"]
LONGEST_TIMEOUT = 30 * 86400.0
LONGEST_EXPIRY = 366 * 86400.0
LONGEST_KEPT = 10 * LONGEST_EXPIRY
LONGEST_DURATION = 100 * 366 * 86400.0
MOST_ATTEMPTS = 1000
LONGEST_NOTE = 10_000


class Place(Flag):
    """Where a field may be given."""

    REQUEST = auto()  # POST /v1/jobs
    PATCH = auto()  # PATCH and PUT /v1/jobs/{id}
    CLEAR = auto()  # the same, as null: back to the default; null in a short form of the schedule is ignored
    TASK_OPTION = auto()  # @app.task(...), and what workers declare
    SQL = auto()  # mainspring.submit(jsonb)
    KEYWORD = auto()  # Client.submit(...) and task.options(...)


@dataclass(frozen=True, slots=True, eq=False)
class FieldKind:
    """A type as annotations write it. merged: the members of the request are merged with those of the task's option."""

    wire: str
    keyword: str = ""
    stored: str = ""
    merged: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "keyword", self.keyword or self.wire)
        object.__setattr__(self, "stored", self.stored or self.wire)


DURATION = FieldKind("DurationIn", keyword="Duration", stored="float")
COUNT = FieldKind("int")
TEXT = FieldKind("str")
PROSE = FieldKind("str")
CRON = FieldKind("Cron", keyword="str")
ZONE = FieldKind("TimeZone", keyword="str")
DST = FieldKind("DstIn", keyword="DstOptions")
SCHEDULE_TYPE = FieldKind("ScheduleType", keyword="ScheduleKind")
OUTSIDE = FieldKind("OutsideWord", keyword="Outside")
OVERLAP = FieldKind("OverlapWord", keyword="Overlap")
DELIVERY = FieldKind("DeliveryWord", keyword="Delivery")
SANDBOX = FieldKind("SandboxWord", keyword="Sandbox")
NAME = FieldKind("Name", keyword="str")
CHOSEN_ID = FieldKind("ChosenJobId", keyword="str")
PRIORITY = FieldKind("PriorityIn", keyword="Priority")
TIME = FieldKind("Moment", keyword="When")
MOMENT = FieldKind("Moment", keyword="Moment")
MOMENTS = FieldKind("list[Moment]", keyword="Sequence[Moment]")
SCHEDULE = FieldKind("ScheduleText | ScheduleIn", keyword="str | Mapping[str, Any]")
PAIRS = FieldKind("dict[str, str]", keyword="Mapping[str, str]", merged=True)
VARIABLES = FieldKind("Variables", merged=True)
SECRETS = FieldKind("list[SecretName]", keyword="Sequence[str]")
RETRY = FieldKind("RetryIn", keyword="RetryOptions", merged=True)
RESOURCE_LIMITS = FieldKind("ResourceLimitsIn", keyword="ResourceLimitOptions", merged=True)
MISFIRE = FieldKind("MisfireIn", keyword="MisfireOptions", merged=True)
KEPT_SIZE = FieldKind("KeptSizeIn", keyword="bool | int | str", stored="int")
UNIQUE = FieldKind("bool | UniqueIn", keyword="bool | UniqueOptions", stored="Unique")
PAYLOAD = FieldKind("msgspec.Raw", keyword="Any")
CONCURRENCY = FieldKind(
    "bool | int | ConcurrencyIn | list[ConcurrencyIn]",
    keyword="bool | int | ConcurrencyOptions | Sequence[ConcurrencyOptions]",
)
RATE = FieldKind("RateText", keyword="str")
RATE_LIMIT = FieldKind(
    "bool | RateText | RateLimitIn | list[RateLimitIn]",
    keyword="bool | str | RateLimitOptions | Sequence[RateLimitOptions]",
)
CIRCUIT_BREAKER = FieldKind("bool | CircuitBreakerIn", keyword="bool | CircuitBreakerOptions")
EVENTS_TOGETHER = FieldKind("EventsTogether", keyword="EventsTogetherOptions")
NAMES = FieldKind("list[str]", keyword="Sequence[str]")
TRIGGER_RULE = FieldKind("TriggerRuleWord", keyword="Rule")
ON_UPSTREAM_FAILURE = FieldKind("OnUpstreamFailureWord", keyword="OnUpstreamFailure")
ANYTHING = FieldKind("Any")
NOTIFY = FieldKind("list[NotifyIn]", keyword="Sequence[NotifyOptions]")
ON_DEADLINE = FieldKind("OnDeadlineWord", keyword="OnDeadline", stored="str")
PLAIN_KINDS = (DURATION, COUNT, TEXT, ON_DEADLINE)
WHEN = "Schedule"
HOW = "Job options"
WHERE = "Execution environment"


@dataclass(frozen=True, slots=True)
class OptionPart:
    """An option of a member of a field. gives: the value of an option that takes none."""

    member: str
    option: str
    help: str
    metavar: str = ""
    gives: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a field that `mainspring.submit` takes, with its bounds."""

    name: str
    least: float = 0
    most: float = 0


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a job.

    stored: the path in the definition where it is stored. None if the field is a short form; `means` then names the
    field that it stands for. shown: its names in the view of a job. least, most: the bounds of a number. For text they
    are the bounds of its length; for pairs the shortest value, and the number of pairs. Names have theirs in
    wire/formats.py.

    In SQL: members are the members of an object that SQL takes, and sql_words the words, if it does not take all. The
    others are refused by name.

    On the command line: option is its name, help and metavar explain it, and it is under the heading `panel`. gives:
    the value of an option that takes none. offers: what a shell completes, a name in cli/completing.py. parts: options
    of its members.

    not_in_box: the feature behind the field, if the test box (sdk/testing/) does not have it.
    """

    name: str
    kind: FieldKind
    places: Place
    stored: str | None = None
    shown: tuple[str, ...] = ()
    option: str | None = None
    means: str | None = None
    least: float = 0
    most: float = 0
    plain: bool = False
    help: str | None = None
    metavar: str = ""
    panel: str = HOW
    gives: str | None = None
    offers: str | None = None
    parts: tuple[OptionPart, ...] = ()
    not_in_box: str | None = None
    members: tuple[Member, ...] = ()
    sql_words: tuple[str, ...] = ()


_NEW = Place.REQUEST | Place.SQL | Place.KEYWORD  # it cannot be changed later
_JOB = _NEW | Place.PATCH
_SETTING = _JOB | Place.CLEAR
_DEFAULT = _SETTING | Place.TASK_OPTION
_HTTP_ONLY = ~Place.SQL
_UNIQUE = (_NEW & _HTTP_ONLY) | Place.TASK_OPTION
_DEPENDENCIES = "jobs that depend on jobs"


def plain_field(name: str, kind: FieldKind, *, least: float, most: float, help: str) -> Field:
    """A field without special rules. It may appear everywhere."""
    if kind not in PLAIN_KINDS:
        raise ValueError(f"{name}: a plain field is a duration, a count, a text or a word")
    metavar = "D" if kind is DURATION else "N" if kind is COUNT else "TEXT"
    return Field(
        name, kind, _DEFAULT, f"spec.{name}", (name,), "--" + name.replace("_", "-"), least=least, most=most,
        plain=True, help=help, metavar=metavar,
    )  # fmt: skip


def _of_kind(kind: TaskKind) -> Field:
    """The field that describes what a job of this kind runs."""
    call = FieldKind("CALL_IN", keyword=kind.keyword)
    places = _JOB if kind.in_sql else _JOB & _HTTP_ONLY
    return Field(kind.field, call, places, kind.stored, (kind.field,), "--" + kind.field.replace("_", "-"))


_OWN_FIELDS = (
    Field("job_id", CHOSEN_ID, _NEW, "job_id", ("job_id",), "--job-id",
        help="Id of the job. Default: the server chooses one.", metavar="ID"),
    Field("name", NAME, _SETTING, "name", ("name",), "--name",
        help="Name of the job."),
    Field("task", NAME, _JOB, "task", ("task",), "TASK"),
    Field("job_type", NAME, _JOB, means="task"),
    Field("payload", PAYLOAD, _JOB, "payload", ("payload",), "--payload"),
    Field("keep_payload", KEPT_SIZE, _DEFAULT, "spec.keep_payload", ("keep_payload",), "--keep-payload",
        help="Keep the payload after success: true, false, or up to a size. Default: 16KiB.", metavar="SIZE"),
    Field("schedule", SCHEDULE, _JOB, "schedule", ("schedule", "schedule_in_words"), "--manual",
        help="Run only with `mainspring job run`.", panel=WHEN, gives="manual",
        members=(Member("at"), Member("every", 1, LONGEST_DURATION))),
    Field("schedule_type", SCHEDULE_TYPE, _SETTING, means="schedule", shown=("schedule_type",),
        sql_words=("immediate", "future", "interval", "manual")),
    Field("schedule_time", TIME, _SETTING, means="schedule", shown=("schedule_time",)),
    Field("cron_expression", CRON, _SETTING & _HTTP_ONLY, means="schedule", shown=("cron_expression",)),
    Field("cron", CRON, _SETTING & _HTTP_ONLY, means="schedule", shown=("cron_expression",), option="--cron",
        help="Run by a cron expression: '0 9 * * MON-FRI', @daily.", metavar="E", panel=WHEN),
    Field("timezone", ZONE, _SETTING & _HTTP_ONLY, means="schedule", shown=("timezone",), option="--timezone",
        help="Time zone of --cron: Europe/Berlin.", metavar="Z", panel=WHEN),
    Field("delay", DURATION, (_SETTING & _HTTP_ONLY) | Place.TASK_OPTION, means="schedule", shown=("schedule_time",),
        option="--in", help="Run once after this time: 5m, 1h30m.", metavar="D", panel=WHEN),
    Field("at", TIME, Place.KEYWORD, means="schedule", shown=("schedule_time",), option="--at",
        help="Run once at this time: 2026-12-31T23:59:59Z.", metavar="T", panel=WHEN),
    Field("every", DURATION, Place.KEYWORD, means="schedule", shown=("every",), option="--every",
        help="Run at this interval: 90s, 15m, 1h30m.", metavar="D", panel=WHEN),
    Field("rrule", TEXT, Place.KEYWORD, means="schedule", shown=("rrule",), option="--rrule",
        help="Run by a rule of RFC 5545: 'FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17'.", metavar="R", panel=WHEN),
    Field("after", NAMES, Place.KEYWORD, means="schedule", shown=("after",), option="--after",
        help="Run when this job has succeeded; can be repeated: when all of them have, since the last time.",
        metavar="JOB", panel=WHEN, not_in_box=_DEPENDENCIES),
    Field("event", TEXT, Place.KEYWORD, means="schedule", shown=("schedule",), option="--event",
        help="Run when an event with this name is emitted: order.paid.", metavar="NAME", panel=WHEN,
        not_in_box="events"),
    Field("if_", TEXT, Place.KEYWORD, means="schedule", shown=("schedule",), option="--if",
        help="Only if this condition in CEL holds for the event: 'payload.total > 100'.", metavar="CEL", panel=WHEN),
    Field("batch", EVENTS_TOGETHER, Place.KEYWORD, means="schedule", shown=("schedule_in_words",), option="--batch",
        help='Events that share a run: {"size": 100, "wait": "10s"}.', metavar="JSON", panel=WHEN),
    Field("debounce", DURATION, Place.KEYWORD, means="schedule", shown=("schedule_in_words",), option="--debounce",
        help="One run, so long after the last event of a key: 30s.", metavar="D", panel=WHEN),
    Field("exdates", MOMENTS, Place.KEYWORD, means="schedule", shown=("exdates",), option="--exdate",
        help="A fire of --rrule that is left out; can be repeated.", metavar="T", panel=WHEN),
    Field("jitter", DURATION, Place.KEYWORD, means="schedule", shown=("jitter",), option="--jitter",
        help="Each fire is later by up to this: 10m.", metavar="D", panel=WHEN),
    Field("start", MOMENT, Place.KEYWORD, means="schedule", shown=("start",), option="--start",
        help="No fire is before this time.", metavar="T", panel=WHEN),
    Field("end", MOMENT, Place.KEYWORD, means="schedule", shown=("end",), option="--end",
        help="No fire is after this time.", metavar="T", panel=WHEN),
    Field("max_runs", COUNT, Place.KEYWORD, means="schedule", shown=("max_runs", "runs_left"), option="--max-runs",
        help="The schedule ends after so many runs.", metavar="N", panel=WHEN),
    Field("dst", DST, Place.KEYWORD, means="schedule", shown=("dst",), option="--dst-gap", panel=WHEN,
        parts=(
            OptionPart("gap", "--dst-gap", "A time that a clock change skips: shift or skip.", "P"),
            OptionPart("overlap", "--dst-overlap", "A time that a clock change repeats: first, last or both.", "P"),
        )),
    Field("calendar", NAME, Place.KEYWORD, means="schedule", shown=("calendar", "calendar_version"),
        option="--calendar", help="Fire only within this calendar.", metavar="C", panel=WHEN),
    Field("outside", OUTSIDE, Place.KEYWORD, means="schedule", shown=("outside",), option="--outside",
        help="A time outside the calendar: skip it, or next.", metavar="O", panel=WHEN),
    Field("queue", NAME, _DEFAULT, "queue", ("queue",), "--queue",
        help="Name of the queue.", metavar="Q", offers="queues"),
    Field("priority", PRIORITY, _DEFAULT, "priority", ("priority",), "--priority",
        help="low, normal, high or critical.", metavar="P"),
    Field("timeout", DURATION, _DEFAULT, "spec.timeout", ("timeout",), "--timeout",
        help="Time limit for each attempt: 15m.", metavar="D", least=0.001, most=LONGEST_TIMEOUT),
    plain_field(
        "max_losses", COUNT, least=0, most=100, help="How often a run may be lost with its worker before it fails: 3."
    ),
    plain_field(
        "run_timeout", DURATION, least=0.001, most=LONGEST_TIMEOUT, help="Time limit for all attempts together: 2h."
    ),
    plain_field(
        "expires_in", DURATION, least=0.001, most=LONGEST_EXPIRY, help="Skip a run that has not started by then: 10m."
    ),
    plain_field(
        "late_after", DURATION, least=1, most=LONGEST_EXPIRY,
        help="A run that has not started so long after its time is late: 5m.",
    ),
    plain_field(
        "expected_duration", DURATION, least=0.001, most=LONGEST_TIMEOUT,
        help="A run that takes longer is told of, and makes the job late: 10m.",
    ),
    plain_field(
        "deadline", DURATION, least=1, most=LONGEST_EXPIRY, help="A run must have ended so long after its time: 2h."
    ),
    plain_field(
        "on_deadline", ON_DEADLINE, least=0, most=1, help="What a missed deadline does: tell, or cancel the run."
    ),
    plain_field(
        "keep_logs", DURATION, least=3600, most=LONGEST_KEPT,
        help="How long the output of a run is kept, apart from its history: 1y.",
    ),
    Field("kill_grace", DURATION, _DEFAULT & _HTTP_ONLY, "spec.setup.kill_grace", ("kill_grace",), "--kill-grace",
        help="Time between SIGTERM and SIGKILL: 10s.", metavar="D", panel=WHERE),
    Field("env", VARIABLES, _DEFAULT & _HTTP_ONLY, "spec.setup.env", ("env",), "--env",
        help="Environment variable; can be repeated. K=@secret:NAME is the value of a secret.",
        metavar="K=V", panel=WHERE),
    Field("secrets", SECRETS, _DEFAULT & _HTTP_ONLY, "spec.setup.secrets", ("secrets",), "--secret",
        help="A secret that a Python task reads with ctx.secret(NAME); can be repeated.", metavar="NAME", panel=WHERE,
        most=32),
    Field("limits", RESOURCE_LIMITS, _DEFAULT & _HTTP_ONLY, "spec.setup.limits", ("limits",), "--limit",
        help="memory=512MB, cpu=30s, processes=8, files=256, output=10MB; can be repeated.",
        metavar="WHAT=N", panel=WHERE),
    Field("sandbox", SANDBOX, _SETTING & _HTTP_ONLY, "spec.setup.sandbox", ("sandbox",), "--sandbox",
        help="bubblewrap: no network, no files but the system.", metavar="S", panel=WHERE),
    Field("run_as", TEXT, _SETTING & _HTTP_ONLY, "spec.setup.run_as", ("run_as",), "--run-as",
        help="Run the command as this user; the worker must allow it with --run-as-allow.",
        metavar="USER", panel=WHERE),
    Field("required_labels", PAIRS, _DEFAULT, "required_labels", ("required_labels",), "--require",
        help="A label that the worker must have; can be repeated.", metavar="K=V", panel=WHERE, least=1, most=16),
    Field("retry", RETRY, _DEFAULT, "spec.retry", ("retry",), "--retry",
        help='{"backoff": "linear", "base": "5s", "rules": [{"exit_code": 2, "then": "give_up"}]}', metavar="JSON",
        members=(
            Member("max_attempts", 1, MOST_ATTEMPTS), Member("backoff"), Member("base", 0, LONGEST_DURATION),
            Member("cap", 0, LONGEST_DURATION), Member("jitter", 0, 1),
        )),
    Field("retry_policy", RETRY, (_SETTING & _HTTP_ONLY) & ~Place.KEYWORD, means="retry"),
    Field("retries", COUNT, _JOB | Place.TASK_OPTION, means="retry", shown=("max_retries",), option="--retries",
        help="Number of retries after the first attempt.", metavar="N", most=MOST_ATTEMPTS - 1),
    Field("max_retries", COUNT, _JOB, means="retry", shown=("max_retries",), most=MOST_ATTEMPTS - 1),
    Field("misfire", MISFIRE, _SETTING, "spec.misfire", ("misfire",), "--misfire",
        help="Fires that became due while nothing could fire them: skip, once or all. once,grace=1h "
            "runs none that is older than that; all,cap=100 runs that many at most.",
        metavar="M", members=(Member("policy"), Member("grace", 0, LONGEST_DURATION), Member("cap", 1, 1000))),
    Field("overlap", OVERLAP, _SETTING, "overlap", ("overlap",), "--overlap",
        help="If a fire is due while a run is alive: skip, queue, allow or cancel_previous.", metavar="O",
        sql_words=("skip", "allow")),
    Field("concurrency", CONCURRENCY, _DEFAULT & _HTTP_ONLY, "spec.concurrency", ("concurrency",), "--concurrency",
        help='At most N runs at once, or none. Or JSON: {"limit": 3, "per": "task"}, or a list of these.',
        metavar="N",
        parts=(
            OptionPart("key", "--concurrency-key",
                "Count each value of this apart: payload.account, labels.region.", "PATH"),
            OptionPart("order", "--strict", "One run after another, in the order of submission.", gives="strict"),
        ),
        not_in_box="concurrency limits"),
    Field("rate_limit", RATE_LIMIT, _DEFAULT & _HTTP_ONLY, "spec.rate_limit", ("rate_limit",), "--rate",
        help='At most so many starts: 100/m. Or JSON: {"rate": "5/s", "burst": 10, "key": "payload.account"}.',
        metavar="N/TIME", not_in_box="rate limits"),
    Field("rate", RATE, (_JOB | Place.TASK_OPTION) & _HTTP_ONLY, means="rate_limit", shown=("rate_limit",)),
    Field("circuit_breaker", CIRCUIT_BREAKER, _DEFAULT & _HTTP_ONLY, "spec.circuit_breaker", ("circuit_breaker",),
        "--circuit-breaker",
        help="So many failures in a row stop its runs for a time: 5:10m, or on. Then one run is the probe.",
        metavar="N:TIME", not_in_box="circuit breakers"),
    Field("delivery", DELIVERY, _DEFAULT, "spec.delivery", ("delivery",), "--delivery",
        help="at_least_once or at_most_once.", metavar="D"),
    Field("idempotency_key", NAME, _NEW, "spec.idempotency_key", ("idempotency_key",), "--idempotency-key",
        help="A repeated submission with this key creates no second job.", metavar="K"),
    Field("unique", UNIQUE, _UNIQUE, "spec.unique", ("unique",), "--unique",
        help="Fields of which one job at a time has the values: task,payload.account. Also for=10m, "
            "while=queued+running, and else=keep, replace or later: what another submission does to "
            "that job.",
        metavar="BY", not_in_box="unique jobs"),
    Field("owner", TEXT, _SETTING, "spec.owner", ("owner",), "--owner",
        help="Who is responsible for the job.", most=LONGEST_NOTE),
    Field("description", PROSE, _SETTING, "spec.description", ("description",), "--description",
        help="What the job is for.", most=LONGEST_NOTE),
    Field("labels", PAIRS, _SETTING, "spec.labels", ("labels",), "--label",
        help="Label of the job; can be repeated.", metavar="K=V", most=64),
    Field("search", NAMES, _DEFAULT & _HTTP_ONLY, "spec.search", ("search",), "--search-key",
        help="A value of the payload by which its runs are found: account, customer.id; can be repeated.",
        metavar="PATH", most=8),
    Field("declared_by", CHOSEN_ID, _SETTING & _HTTP_ONLY, "declared_by", ("declared_by",)),
    Field("depends_on", NAMES, _SETTING & _HTTP_ONLY, "spec.depends_on", ("depends_on",), "--depends-on",
        help="Its runs wait for this job's run for the same time, or else its next success; can be repeated.",
        metavar="JOB", not_in_box=_DEPENDENCIES),
    Field("dependencies", NAMES, _SETTING & _HTTP_ONLY & ~Place.KEYWORD, means="depends_on"),
    Field("rule", TRIGGER_RULE, _SETTING & _HTTP_ONLY, "spec.rule", ("rule",), "--rule",
        help="Which ends of these jobs start it: all_success, all_done, one_success or one_failed.", metavar="R"),
    Field("on_upstream_failure", ON_UPSTREAM_FAILURE, _SETTING & _HTTP_ONLY, "spec.on_upstream_failure",
        ("on_upstream_failure",), "--on-upstream-failure",
        help="If a job that it depends on fails: skip it, or fail.", metavar="F"),
    Field("notify", NOTIFY, _SETTING & _HTTP_ONLY, "spec.notify", ("notify",), "--notify",
        help="Whom to tell of what: failure,recovered=oncall; can be repeated.", metavar="EVENTS=CHANNELS",
        not_in_box="notifications"),
)  # fmt: skip
_BEFORE_CALLS = 4  # job_id, name, task, job_type
# Fields of the view of a job that its owner does not set.
FATE = frozenset(
    {
        "status", "pause_reason", "next_fire_at", "last_fired_for", "shard_id", "version", "created_at", "updated_at",
        "generation", "latest_run", "error_message", "warnings", "health", "workflow_version", "owned_by", "created_by",
    }
)  # fmt: skip
refuse_kinds(FATE | {name for field in _OWN_FIELDS for name in (field.name, *field.shown)})
CALL_FIELDS = tuple(_of_kind(kind) for kind in task_kinds())
FIELDS = (*_OWN_FIELDS[:_BEFORE_CALLS], *CALL_FIELDS, *_OWN_FIELDS[_BEFORE_CALLS:])


class PlainValues:
    """The plain fields as the spec stores them and the view of a job shows them. None means the default."""

    __slots__ = ()

    max_losses: int | None
    run_timeout: float | None
    expires_in: float | None
    late_after: float | None
    expected_duration: float | None
    deadline: float | None
    on_deadline: str | None
    keep_logs: float | None


class PlainKeywords(TypedDict, total=False):
    """The plain fields as Python code gives them."""

    max_losses: int | None
    run_timeout: Duration | None
    expires_in: Duration | None
    late_after: Duration | None
    expected_duration: Duration | None
    deadline: Duration | None
    on_deadline: OnDeadline | None
    keep_logs: Duration | None


PLAIN_FIELDS = tuple(field for field in FIELDS if field.plain)
PLAIN_NAMES = tuple(field.name for field in PLAIN_FIELDS)


def fields_in(place: Place) -> tuple[Field, ...]:
    """The fields that may appear in `place`, in the order of the table."""
    return tuple(field for field in FIELDS if place in field.places)


def bounds_of(path: str) -> tuple[float, float]:
    """The bounds of a field, or of a member such as "retry.base"."""
    name, _, member = path.partition(".")
    [field] = [field for field in FIELDS if field.name == name]
    if not member:
        return field.least, field.most
    [found] = [found for found in field.members if found.name == member]
    return found.least, found.most


def task_options() -> tuple[Field, ...]:
    """The options that a worker declares for a task, without the short forms of other options."""
    options = fields_in(Place.TASK_OPTION)
    names = {field.name for field in options}
    return tuple(field for field in options if field.means not in names)


def can_change(field: Field) -> bool:
    """Whether the field of a job can be changed later, itself or as a short form of another field."""
    fields = [field, *(each for each in FIELDS if each.name == field.means)]
    return any(Place.PATCH in each.places for each in fields)
