"""The handlers of events. This is the one place that knows all features: a process that changes runs imports it.

Handlers of a kind are called in this order. It is the order in which they lock rows: runs of other jobs before joins.
"""

from __future__ import annotations

from mainspring.operations.audit.effects import LostWorkersAudited, OpenedBreakersAudited
from mainspring.operations.backfills.effects import BackfilledRuns
from mainspring.operations.dependencies.effects import RunsWithParents
from mainspring.operations.dependencies.follow import DependantJobs
from mainspring.operations.event_metrics import EventCounter, fires_of, pause_or_resume
from mainspring.operations.events.started_jobs import StartedJobs
from mainspring.operations.lifecycle.dispatch import (
    APPROVALS_ASKED,
    BACKFILLS_ENDED,
    BREAKERS_CLOSED,
    BREAKERS_OPENED,
    CONTAINERS_STOPPED,
    EVENTS_EMITTED,
    FINISHERS,
    FIRES_MISSED,
    QUEUES_PAUSED,
    RUNS_CREATED,
    RUNS_ENDED,
    SLOTS_RELEASED,
    WORKERS_LOST,
)
from mainspring.operations.limits.effects import HeldRunsCreated, ReleasedSlots
from mainspring.operations.live.effects import ListsChange
from mainspring.operations.live.topics import JOBS, RUNS
from mainspring.operations.notify.handlers import (
    AskedApprovalAlerts,
    ClosedBreakerAlerts,
    EndedBackfillAlerts,
    LostWorkerAlerts,
    OpenBreakerAlerts,
)
from mainspring.operations.waits.effects import CalledByEvents, EndedChildren, EndedWaits
from mainspring.operations.workflows.effects import StoppedFlows
from mainspring.operations.workflows.rule_engine import STEPS_AND_FLOWS
from mainspring.operations.workflows.stopper import StopFinisher

RUNS_ENDED.handled_by(DependantJobs(), EndedWaits(), EndedChildren(), STEPS_AND_FLOWS, BackfilledRuns())
RUNS_CREATED.handled_by(HeldRunsCreated(), RunsWithParents())
SLOTS_RELEASED.handled_by(ReleasedSlots())
FIRES_MISSED.handled_by(EventCounter("fire_missed", fires_of), ListsChange(JOBS))
WORKERS_LOST.handled_by(EventCounter("worker_lost"), LostWorkersAudited(), LostWorkerAlerts())
BREAKERS_OPENED.handled_by(EventCounter("breaker_opened"), OpenedBreakersAudited(), OpenBreakerAlerts())
BREAKERS_CLOSED.handled_by(ClosedBreakerAlerts())
QUEUES_PAUSED.handled_by(EventCounter(pause_or_resume))
BACKFILLS_ENDED.handled_by(EventCounter("backfill_ended"), ListsChange(JOBS, RUNS), EndedBackfillAlerts())
APPROVALS_ASKED.handled_by(AskedApprovalAlerts())
CONTAINERS_STOPPED.handled_by(StoppedFlows())
EVENTS_EMITTED.handled_by(StartedJobs(), CalledByEvents())
FINISHERS.append(StopFinisher())
