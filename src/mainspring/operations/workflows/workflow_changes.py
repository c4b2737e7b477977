"""Create, change and run workflows. A workflow is a job: these operations check its steps, and leave the rest to the
operations on jobs. Its definition is stored in the transaction that stores or changes the job.

A large request or patch comes as it was sent, undecoded: it is prepared in another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import msgspec
from msgspec import UNSET

from mainspring.domain.errors import InvalidInput, MainspringError, VersionMismatch
from mainspring.domain.intake.patch import amend, names_schedule
from mainspring.domain.intake.workflows import (
    WorkflowSource,
    define_workflow,
    parameters_as_payload,
    patch_of_job,
    renamed,
    run_parameters,
    with_version,
)
from mainspring.domain.job import JobDefinition
from mainspring.domain.tags import changed_meanwhile
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.config import LARGE_BYTES
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.permissions import SUBMITTER
from mainspring.operations.control.amend import Amender, GivenChange
from mainspring.operations.control.run_now import ManualRuns, RanNow
from mainspring.operations.limits.quota_guard import QuotaGuard
from mainspring.operations.secrets.secret_check import NamedByJob, SecretCheck
from mainspring.operations.signatures.offers import OfferRegistry
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.submit.submitter import Submitted, Submitter
from mainspring.operations.workflows.calls import CallCheck, check_calls
from mainspring.operations.workflows.large_preparation import (
    PATCH,
    REQUEST,
    STEPS,
    LargePreparation,
    Order,
    Prepared,
)
from mainspring.operations.workflows.preparation import Checked, NamedByStep, Version, check, digest_of, version_of
from mainspring.operations.workflows.reader import StoredSource, WorkflowReader, parameters_of
from mainspring.store import workflow_versions
from mainspring.store.jobs import LockedJob
from mainspring.store.pool import Connection
from mainspring.wire.jobs import JobPatch, JobView, RunNowRequest
from mainspring.wire.workflows import StepIn, WorkflowCheck, WorkflowPatch, WorkflowRequest, WorkflowRunNow

_TRIES = 3
_OF_A_DEFINITION = ("steps", "parameters", "queue", "priority")
_decode_request = msgspec.json.Decoder(WorkflowRequest).decode
_decode_patch = msgspec.json.Decoder(WorkflowPatch).decode
_decode_steps = msgspec.json.Decoder(list[StepIn]).decode


class WorkflowChanges:
    def __init__(
        self,
        clock: DatabaseClock,
        signatures: SignatureRegistry,
        offers: OfferRegistry,
        submitter: Submitter,
        amender: Amender,
        manual_runs: ManualRuns,
        reader: WorkflowReader,
        secrets: SecretCheck,
        quotas: QuotaGuard,
        calls: CallCheck,
    ) -> None:
        self._calls = calls
        self._secrets = secrets
        self._quotas = quotas
        self._clock = clock
        self._signatures = signatures
        self._offers = offers
        self._submitter = submitter
        self._amender = amender
        self._manual_runs = manual_runs
        self._workflows = reader
        self._large = LargePreparation()

    async def create(
        self, caller: Caller, request: WorkflowRequest | bytes, version: Version | None = None
    ) -> Submitted:
        """Store a workflow. With an idempotency key a repeated request creates no second one. version: what was
        prepared of a large one, if `request` comes without its steps."""
        digest: bytes | None = None
        if isinstance(request, bytes):
            prepared = await self._prepare(caller.tenant, REQUEST, request, stores=True)
            definition = define_workflow(request_in(prepared), self._clock.now())
            version, digest = version_in(prepared), prepared.digest
        elif version is not None:
            definition = define_workflow(request, self._clock.now())
        else:
            definition = define_workflow(request, self._clock.now())
            source = WorkflowSource(request.steps, request.queue, request.priority)
            known = self._signatures.known(caller.tenant)
            version = await version_of(source, request.parameters or {}, self._clock.now(), known)
            digest = None if request.idempotency_key is None else digest_of(request)

        await self._check_secrets(caller, version.secrets)

        async def also(connection: Connection, workflow_id: str, generation: int) -> None:
            await _store(connection, caller, workflow_id, generation, 1, version)
            after = {"task": definition.task, "schedule": definition.schedule.kind.name, "workflow_version": 1}
            await record(connection, caller, "job", workflow_id, None, after)

        try:
            done = await self._submitter.submit_defined(caller, definition, digest, also)
        except MainspringError as error:
            raise renamed(error) from None
        return msgspec.structs.replace(done, warnings=await self._offers.warnings(caller, version.needs))

    async def validate(self, caller: Caller, request: WorkflowRequest | bytes) -> WorkflowCheck:
        """Check a workflow without storing it."""
        prepared: Prepared | None = None
        if isinstance(request, bytes):
            prepared = await self._prepare(caller.tenant, REQUEST, request, stores=False)
            request = request_in(prepared)
        job = define_workflow(request, self._clock.now())
        try:
            await self._submitter.validate_defined(caller, job)
        except MainspringError as error:
            raise renamed(error) from None
        if prepared is not None:
            checked = _check_in(prepared)
        else:
            source = WorkflowSource(request.steps, request.queue, request.priority)
            known = self._signatures.known(caller.tenant)
            checked = await check(source, request.parameters or {}, self._clock.now(), known)
        await self._check_secrets(caller, checked.secrets)
        await self._calls.check(caller, job.job_id, checked.calls)
        warnings = await self._offers.warnings(caller, checked.needs)
        return msgspec.structs.replace(checked.answer, warnings=warnings)

    async def update(
        self,
        caller: Caller,
        workflow_id: str,
        patch: WorkflowPatch | bytes,
        if_version: int | None,
        version: Version | None = None,
    ) -> list[str]:
        """Change a workflow. Runs that have fired keep the definition that they were fired with. Returns warnings.
        version: what was prepared of a large one, if `patch` comes without its steps."""
        for _ in range(_TRIES):
            try:
                return await self._update(caller, workflow_id, patch, if_version, version)
            except VersionMismatch:
                if if_version is not None:
                    raise
        raise changed_meanwhile(f"workflow {workflow_id!r}")

    async def _update(
        self,
        caller: Caller,
        workflow_id: str,
        patch: WorkflowPatch | bytes,
        if_version: int | None,
        prepared: Version | None,
    ) -> list[str]:
        """The steps are checked before the job is locked, with the parameters that this version of it has."""
        view = await self._workflows.job(caller, workflow_id)
        if isinstance(patch, bytes):
            patch, prepared = await self._large_patch(caller, view, patch)
        job_patch = patch_of_job(patch)
        if job_patch is not None:
            self._quotas.check_payload(caller, job_patch.payload, "parameters")
        if prepared is None and any(getattr(patch, name) is not UNSET for name in _OF_A_DEFINITION):
            prepared = await self._changed(caller, view, patch)
        if prepared is not None:
            await self._check_secrets(caller, prepared.secrets)
            if_version = view.version if if_version is None else if_version
        elif job_patch is None:
            raise InvalidInput("the body contains no field to change", field="$", hint='such as {"priority": "high"}')

        async def change(connection: Connection, row: LockedJob, stored: JobDefinition) -> JobDefinition:
            changed = stored if job_patch is None else _amended(stored, row.now, job_patch)
            if prepared is None:
                return changed
            version = await workflow_versions.newest(connection, caller.tenant, row.job_id, row.generation) + 1
            await _store(connection, caller, row.job_id, row.generation, version, prepared)
            return with_version(changed, version)

        given = GivenChange()
        if job_patch is not None:
            same = None if prepared is not None else partial(_amended, patch=job_patch)
            given = GivenChange(same, names_schedule=names_schedule(job_patch))
        return await self._amender.update_by(caller, workflow_id, change, if_version, given)

    async def _check_secrets(self, caller: Caller, found: Sequence[NamedByStep]) -> None:
        named = [NamedByJob(place, one.named, one.queue, one.task) for place, one in enumerate(found)]
        await self._secrets.check_named(caller.tenant, named)

    async def run_now(
        self, caller: Caller, workflow_id: str, request: WorkflowRunNow, if_version: int | None = None
    ) -> RanNow:
        """A run beside the schedule, with values for some of the parameters."""
        view = await self._workflows.job(caller, workflow_id)
        payload = msgspec.Raw()
        if request.parameters is not None:
            payload = parameters_as_payload(run_parameters(parameters_of(view), request.parameters))
            self._quotas.check_payload(caller, payload, "parameters")
        run_now = RunNowRequest(payload=payload, idempotency_key=request.idempotency_key)
        try:
            return await self._manual_runs.run_now(caller, workflow_id, run_now, if_version)
        except MainspringError as error:
            raise renamed(error) from None

    async def pause(self, caller: Caller, workflow_id: str, if_version: int | None = None) -> None:
        await self._workflows.job(caller, workflow_id)
        await self._amender.pause(caller, workflow_id, if_version)

    async def resume(self, caller: Caller, workflow_id: str, if_version: int | None = None) -> None:
        await self._workflows.job(caller, workflow_id)
        await self._amender.resume(caller, workflow_id, if_version)

    async def delete(self, caller: Caller, workflow_id: str, if_version: int | None) -> None:
        """It fires no more, and its live runs are cancelled."""
        await self._workflows.job(caller, workflow_id)
        await self._amender.cancel_job(caller, workflow_id, if_version)

    async def _changed(self, caller: Caller, view: JobView, patch: WorkflowPatch) -> Version:
        """The next version of a definition."""
        source = await self._workflows.source(caller, view)
        queue = source.queue if patch.queue is UNSET else patch.queue
        priority = source.priority if patch.priority is UNSET else patch.priority
        parameters = parameters_of(view) if patch.parameters is UNSET else patch.parameters or {}
        if patch.steps is UNSET and len(source.steps) > LARGE_BYTES:
            changed = StoredSource(source.steps, source.count, queue, priority)
            return version_in(
                await self._prepare(
                    caller.tenant, STEPS, source.steps, stores=True, stored=changed, parameters=list(parameters)
                )
            )
        steps = _decode_steps(source.steps) if patch.steps is UNSET else patch.steps
        known = self._signatures.known(caller.tenant)
        return await version_of(WorkflowSource(steps, queue, priority), parameters, self._clock.now(), known)

    async def _large_patch(self, caller: Caller, view: JobView, patch: bytes) -> tuple[WorkflowPatch, Version | None]:
        """A patch without its steps, and the next version of the definition if it has some."""
        stored = await self._workflows.source(caller, view)
        prepared = await self._prepare(
            caller.tenant, PATCH, patch, stores=True, stored=stored, parameters=list(parameters_of(view))
        )
        if not prepared.rest:
            raise _problem_in(prepared)
        decoded = _decode_patch(prepared.rest)
        patch_of_job(decoded)  # what is wrong with the other fields comes first
        return decoded, version_in(prepared) if prepared.has_steps else None

    async def _prepare(
        self,
        tenant: TenantId,
        kind: str,
        text: bytes,
        *,
        stores: bool,
        stored: StoredSource | None = None,
        parameters: list[str] | None = None,
    ) -> Prepared:
        order = Order(
            kind,
            self._clock.now(),
            stores,
            self._signatures.texts(tenant),
            parameters or [],
            None if stored is None else stored.queue,
            None if stored is None else stored.priority,
        )
        return await self._large.prepare(tenant, order, text)


def request_in(prepared: Prepared) -> WorkflowRequest:
    """The request without its steps."""
    if not prepared.rest:
        raise _problem_in(prepared)
    return _decode_request(prepared.rest)


def _check_in(prepared: Prepared) -> Checked:
    if prepared.check is None:
        raise _problem_in(prepared)
    return prepared.check


def version_in(prepared: Prepared) -> Version:
    """What is to be stored. Raises what is wrong with it."""
    if prepared.version is None:
        raise _problem_in(prepared)
    return prepared.version


def _problem_in(prepared: Prepared) -> MainspringError:
    assert prepared.problem is not None
    return prepared.problem.error()


def _amended(stored: JobDefinition, now: datetime, patch: JobPatch) -> JobDefinition:
    try:
        return amend(stored, patch, now)
    except MainspringError as error:
        raise renamed(error) from None


async def _store(
    connection: Connection, caller: Caller, workflow_id: str, generation: int, version: int, what: Version
) -> None:
    await check_calls(connection, caller, workflow_id, what.calls)
    await workflow_versions.insert(
        connection,
        caller.tenant,
        (workflow_id, generation, version),
        steps=what.steps,
        definition=what.definition,
        source=what.source,
        created_by=caller.name,
        calls=sorted({call.workflow for call in what.calls}),
        calls_of=caller.owner if what.calls and caller.role == SUBMITTER else None,
    )
