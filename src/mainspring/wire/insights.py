"""How the system is doing."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mainspring.wire.runs import QueueView
from mainspring.wire.states import RunStateWord

WindowWord = Literal["1h", "6h", "24h", "7d", "30d"]


class Verdict(msgspec.Struct, frozen=True):
    """How things are, in a sentence. `since`: when what it says began, if that is known."""

    level: Literal["ok", "warning", "critical"]
    text: str
    since: datetime | None = None


class Totals(msgspec.Struct):
    """What ended in a window. `retried` and `lost`: attempts that failed or were lost and were followed by another one.
    `success_rate`: of those that succeeded or failed. Lags are from the time for which a run was meant to its first
    start, durations are those of the last attempts; percentiles are in seconds, and at most 4.5 % off."""

    ended: int
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    retried: int
    lost: int
    missed: int
    per_second: float
    success_rate: float | None
    lag_p50: float | None
    lag_p99: float | None
    duration_p50: float | None
    duration_p99: float | None
    duration_sum: float


class Series(msgspec.Struct):
    """The totals over time. Each list has one value for each step that begins at `at`. `waiting`, `held`, `running`,
    `slots` and `backlog` (jobs that are due and have not fired) are the largest sampled values, null where there is no
    sample."""

    at: list[datetime]
    succeeded: list[int]
    failed: list[int]
    cancelled: list[int]
    skipped: list[int]
    retried: list[int]
    lost: list[int]
    missed: list[int]
    lag_p50: list[float | None]
    lag_p99: list[float | None]
    duration_p50: list[float | None]
    duration_p99: list[float | None]
    waiting: list[int | None]
    held: list[int | None]
    running: list[int | None]
    slots: list[int | None]
    backlog: list[int | None]


class WindowView(msgspec.Struct, rename={"from_": "from"}):
    """A look back. What ended before `complete_until` is counted. `previous`: the window of the same length before."""

    w: WindowWord
    from_: datetime
    to: datetime
    step_s: int
    complete_until: datetime | None
    totals: Totals
    previous: Totals
    series: Series


class NodeView(msgspec.Struct):
    """A process that schedules. `shards`: how many it owns."""

    node_id: str
    host: str
    started_at: datetime
    seen_at: datetime
    shards: int


class FailureView(msgspec.Struct):
    """Failed attempts with the same fingerprint: task, error class, and first line with numbers, ids, quoted words and
    paths masked. `count`: all of them; `failed`: those that ended their run. `series`: how many in each step. `jobs`:
    how many jobs are known to be hit in the newest 24 hours, up to 20 for each hour and queue, and `job_ids`: some of
    these; one-time jobs do not count. The fingerprint `other` has what was left when there were too many groups in an
    hour."""

    fingerprint: str
    title: str
    count: int
    failed: int
    first: datetime
    last: datetime
    series: list[int]
    tasks: list[str]
    queues: list[str]
    jobs: int
    job_ids: list[str]
    sample_run: str


class Failures(msgspec.Struct, rename={"from_": "from"}):
    """The response to `GET /v1/insights/failures`: groups of failures, the largest first. `at`: the steps of each
    `series`. `left_out`: how many groups are not shown. `searched_to`: of a job only its newest runs are read, and the
    oldest of them ended then; null if all were read."""

    from_: datetime
    to: datetime
    step_s: int
    at: list[datetime]
    groups: list[FailureView]
    left_out: int = 0
    complete_until: datetime | None = None
    searched_to: datetime | None = None


class FailureGroupView(msgspec.Struct, rename={"from_": "from"}):
    """The response to `GET /v1/insights/failures/{fingerprint}`: one group of failures. `at`: the steps of its
    `series`."""

    from_: datetime
    to: datetime
    step_s: int
    at: list[datetime]
    group: FailureView
    complete_until: datetime | None = None


class RunBar(msgspec.Struct):
    """One run of a job: how it ended, how long it waited and ran, in seconds."""

    run_id: str
    status: RunStateWord
    scheduled_for: datetime
    ended_at: datetime
    lag: float | None
    duration: float | None


class OutcomeBar(msgspec.Struct):
    """One run of a job: how it ended, and how many seconds it ran."""

    run_id: str
    status: RunStateWord
    scheduled_for: datetime
    ended_at: datetime
    duration: float | None


class JobOutcomes(msgspec.Struct):
    """The newest runs of a job that have ended: the last ten, newest first, and how many succeeded and failed. more:
    these are the newest 100 of more runs."""

    job_id: str
    succeeded: int
    failed: int
    more: bool
    runs: list[OutcomeBar]


class JobOutcomeList(msgspec.Struct):
    """The response to `GET /v1/insights/jobs`. since: the beginning of the week that is counted."""

    since: datetime
    jobs: list[JobOutcomes]


class QueueScale(msgspec.Struct):
    """The scaling signal of a queue. free: slots of its live workers that hold nothing; those of a worker that serves
    several queues are in each of them. rate: how many runs ended per second in the last minute. duration: how many
    seconds a run takes on average, null if none has ended since yesterday. backlog_s: seconds until what waits now has
    started, with the slots that there are. slots_wanted: slots that keep up and start what waits within `within_s`."""

    queue: str
    waiting: int
    running: int
    free: int
    workers: int
    rate: float
    duration: float | None
    backlog_s: float
    slots_wanted: int


class Scaling(msgspec.Struct):
    """The response to `GET /v1/insights/scaling`. backlog_s: the largest of the queues. slots_wanted: their sum.
    left_out: how many queues are not shown. taken_at: when the runs were counted, if that was not now."""

    within_s: float
    backlog_s: float
    slots_wanted: int
    queues: list[QueueScale]
    left_out: int = 0
    taken_at: datetime | None = None


class JobSeries(msgspec.Struct, rename={"from_": "from"}):
    """The response to `GET /v1/jobs/{job_id}/series`: what became of the runs of a job. `runs`: the newest 100, newest
    first. The rest counts those that ended within the window; at most the newest 3,000 runs are read, and `searched_to`
    says where that ended, or is null."""

    w: WindowWord
    from_: datetime
    to: datetime
    step_s: int
    totals: Totals
    at: list[datetime]
    succeeded: list[int]
    failed: list[int]
    cancelled: list[int]
    skipped: list[int]
    lag_p50: list[float | None]
    duration_p50: list[float | None]
    duration_p99: list[float | None]
    runs: list[RunBar]
    searched_to: datetime | None = None


class Overview(msgspec.Struct):
    """The response to `GET /v1/insights/overview`: runs, queues and workers of the tenant, and the state of the whole
    installation.

    `status` is `degraded` if something is wrong, and `problems` says what, in sentences. `rate` is how many runs ended
    per second over the last minute, and `succeeded` and `failed` are how many of these ended so. `fire_lag` is how many
    seconds the most overdue job is late. `held` is the number of runs that wait for room in a limit. `busy` is the
    number of running runs and `slots` that of the live workers. The queues are the busiest ones. `schedulers` is the
    number of live ones, which share the `shards`. `paused` says in sentences what is paused and by whom. `taken_at`:
    when the runs were counted. `verdict` is the whole in a sentence. `backlog`: jobs that are due and have not fired,
    as sampled, up to 10,000. More than 100,000 dead letters are not counted but estimated, and
    `dead_letters_estimated` says so. `window` is there if `w` was given. `warnings` says in sentences what goes wrong
    slowly: pauses that were forgotten, jobs that never ran or always fail, and in the tenant `default` clocks that
    differ and a database near its limits. They do not change `status`.
    """

    status: Literal["ok", "degraded"]
    problems: list[str]
    at: datetime
    version: str
    rate: float
    succeeded: int
    failed: int
    waiting: int
    scheduled: int
    oldest_seconds: float | None
    fire_lag: float
    busy: int
    slots: int
    workers: dict[str, int]
    dead_letters: int
    schedulers: int
    shards_held: int
    shards: int
    queues: list[QueueView]
    held: int = 0
    paused: list[str] = []
    verdict: Verdict | None = None
    taken_at: datetime | None = None
    backlog: int = 0
    nodes: list[NodeView] = []
    window: WindowView | None = None
    dead_letters_estimated: bool = False
    warnings: list[str] = []
