"""The operations of this server, which the routes call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from litestar import Request

from mainspring.api.readiness import ReadinessCheck
from mainspring.kernel.clock import Clock
from mainspring.operations.access.access_admin import AccessAdmin
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.sessions import Sessions
from mainspring.operations.backfills.control import BackfillControl
from mainspring.operations.bulk.control import BulkControl
from mainspring.operations.calendars.changes import CalendarChanger
from mainspring.operations.control.amend import Amender
from mainspring.operations.control.declare import Declarer
from mainspring.operations.control.drain import Drainer
from mainspring.operations.control.replay import Replayer
from mainspring.operations.control.run_now import ManualRuns
from mainspring.operations.exchange.death_notices import DeathNotices
from mainspring.operations.exchange.exchanger import Exchanger
from mainspring.operations.limits.breaker_control import BreakerControl
from mainspring.operations.limits.gate_changes import GateChanger
from mainspring.operations.limits.settings import LimitSetter
from mainspring.operations.live.streams import Streams
from mainspring.operations.logs.log_service import LogService
from mainspring.operations.read.calendars import CalendarReader
from mainspring.operations.read.dead_letters import DeadLetterReader
from mainspring.operations.read.explanation import Explainer
from mainspring.operations.read.failures import FailureReader
from mainspring.operations.read.find import Finder
from mainspring.operations.read.heat_map import HeatMapReader
from mainspring.operations.read.ids import IdReader
from mainspring.operations.read.job_series import JobSeriesReader
from mainspring.operations.read.job_timeline import JobTimelineReader
from mainspring.operations.read.jobs import JobReader
from mainspring.operations.read.limits import LimitReader
from mainspring.operations.read.nodes import NodeReader
from mainspring.operations.read.overview import OverviewReader
from mainspring.operations.read.preview import Previewer
from mainspring.operations.read.queues import QueueReader
from mainspring.operations.read.runs import RunReader
from mainspring.operations.read.standing import StandingReader
from mainspring.operations.read.upcoming import UpcomingReader
from mainspring.operations.read.workers import WorkerReader
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.submit.submitter import Submitter
from mainspring.operations.workflows.changes import WorkflowChanges
from mainspring.operations.workflows.control import WorkflowRuns
from mainspring.operations.workflows.reader import WorkflowReader
from mainspring.operations.workflows.run_reader import WorkflowRunReader


@dataclass(frozen=True, slots=True)
class Services:
    submitter: Submitter
    amender: Amender
    declarer: Declarer
    job_reader: JobReader
    run_reader: RunReader
    job_timeline: JobTimelineReader
    queue_reader: QueueReader
    limit_reader: LimitReader
    calendar_reader: CalendarReader
    calendar_changer: CalendarChanger
    limit_setter: LimitSetter
    worker_reader: WorkerReader
    dead_letter_reader: DeadLetterReader
    id_reader: IdReader
    finder: Finder
    node_reader: NodeReader
    standing_reader: StandingReader
    overview_reader: OverviewReader
    failure_reader: FailureReader
    job_series: JobSeriesReader
    previewer: Previewer
    explainer: Explainer
    upcoming_reader: UpcomingReader
    heat_map_reader: HeatMapReader
    replayer: Replayer
    manual_runs: ManualRuns
    exchanger: Exchanger
    death_notices: DeathNotices
    drainer: Drainer
    breakers: BreakerControl
    backfills: BackfillControl
    bulk: BulkControl
    workflow_changes: WorkflowChanges
    workflow_reader: WorkflowReader
    workflow_run_reader: WorkflowRunReader
    workflow_runs: WorkflowRuns
    gate_changer: GateChanger
    logs: LogService
    streams: Streams
    signatures: SignatureRegistry
    access: AccessAdmin
    sessions: Sessions
    clock: Clock
    readiness: ReadinessCheck


def services_of(request: Request[Any, Any, Any]) -> Services:
    return cast(Services, request.app.state.services)


def caller_of(request: Request[Any, Any, Any]) -> Caller:
    return cast(Caller, request.scope["caller"])  # type: ignore[typeddict-item]
