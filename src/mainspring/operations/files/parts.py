"""The operations on what job files have, joined in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mainspring.kernel import metrics
from mainspring.kernel.clock import DatabaseClock
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.calendar_changes import CalendarChanger
from mainspring.operations.control.amend import Amender
from mainspring.operations.control.run_now import ManualRuns
from mainspring.operations.lifecycle.dispatch import finish
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.limits.depths import Depths
from mainspring.operations.limits.gate_changes import GateChanger
from mainspring.operations.limits.quota_guard import PartGuard, QuotaGuard
from mainspring.operations.read.jobs import JobReader
from mainspring.operations.read.runs import RunReader
from mainspring.operations.secrets.secret_changes import SecretStore
from mainspring.operations.secrets.secret_check import SecretCheck
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.offers import OfferRegistry
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.submit.submitter import Submitter
from mainspring.operations.workflows.calls import CallCheck
from mainspring.operations.workflows.large_preparation import LargePreparation
from mainspring.operations.workflows.reader import WorkflowReader
from mainspring.operations.workflows.workflow_changes import WorkflowChanges
from mainspring.store.gates import Gate
from mainspring.store.joined import joined_store
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store


@dataclass(frozen=True, slots=True)
class FileServices:
    """What the operations are made of."""

    store: Store
    lanes: LaneRegistry
    signals: Signals
    clock: DatabaseClock
    signatures: SignatureRegistry
    depths: Depths
    quotas: QuotaGuard
    offers: OfferRegistry
    runs: RunReader
    calendars: CalendarChanger
    gates: GateChanger
    secrets: SecretStore
    large_workflows: LargePreparation = field(default_factory=LargePreparation)


class _JoinedSubmitter(Submitter):
    """Counts what it has accepted when the transaction is committed."""

    accepted = 0

    def _count(self, accepted: int) -> None:
        self.accepted += accepted


class Parts:
    """The operations in the transaction of `connection`. What follows the commit is kept until `committed`."""

    def __init__(self, services: FileServices, caller: Caller, connection: Connection) -> None:
        self.services, self.caller, self.connection = services, caller, connection
        store = joined_store(services.store, connection)
        signals, self._publish = services.signals.held()
        lanes, clock, signatures = services.lanes, services.clock, services.signatures
        self.lanes, self.clock = lanes, clock
        self.known = signatures.known(caller.tenant)
        secrets = SecretCheck(store)
        # No hand-offs: a worker must not get a run before the commit.
        self.submitter = _JoinedSubmitter(
            store,
            lanes,
            signals,
            clock,
            signatures,
            services.depths,
            services.offers,
            None,
            secrets,
            PartGuard(services.quotas),
        )
        self.amender = Amender(store, lanes, signals, signatures)
        jobs = JobReader(store, lanes, services.runs)
        self.workflow_reader = WorkflowReader(store, jobs)
        self.workflows = WorkflowChanges(
            clock,
            signatures,
            services.offers,
            self.submitter,
            self.amender,
            ManualRuns(store, lanes, signals, clock, signatures),
            self.workflow_reader,
            secrets,
            services.quotas,
            CallCheck(store),
        )
        self.after = AfterCommit(self._publish)

    async def committed(self) -> None:
        """Publish what has changed, and wait until claims know new limits."""
        metrics.submitted.inc(self.submitter.accepted)
        self.after.publish()
        for effects in self.after.effects:
            await finish(effects, self.services.store, self.services.signals)
        if self.after.gates:
            merged = Effects()
            for effects in self.after.gate_effects:
                merged.merge(effects)
            await self.services.gates.settle(self.caller, self.after.gates, merged)


@dataclass(slots=True)
class AfterCommit:
    publish: Callable[[], None]
    effects: list[Effects] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    gate_effects: list[Effects] = field(default_factory=list)
