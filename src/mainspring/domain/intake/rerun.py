"""Intake of a run that repeats another one, or of a manual run with its own payload. The server and the test box of the
SDK share this code."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.domain.intake.canonical import same_json
from mainspring.domain.intake.job_secrets import named_secrets
from mainspring.domain.intake.kind_checks import checks_of, stored_call
from mainspring.domain.intake.patch import amend
from mainspring.domain.intake.workflows import parameters_as_payload, run_parameters
from mainspring.domain.job import JobDefinition
from mainspring.domain.workflows.flow import WORKFLOW_TASK
from mainspring.wire.jobs import JobPatch


def with_payload(stored: JobDefinition, payload: msgspec.Raw, now: datetime, *, dropped: bool = False) -> JobDefinition:
    """`stored` with another payload, checked as at intake. `dropped`: the stored payload was not kept. A workflow takes
    values for some of its parameters."""
    if dropped:
        stored = msgspec.structs.replace(stored, payload=_stand_in(stored, payload))
    changed = amend(stored, JobPatch(payload=payload), now)
    _check_secrets(stored, changed)
    if stored.task != WORKFLOW_TASK:
        return changed
    own, given = (msgspec.json.decode(text or "{}") for text in (stored.payload, changed.payload))
    parameters = run_parameters(own, given, "payload")
    return amend(stored, JobPatch(payload=parameters_as_payload(parameters)), now) if parameters else changed


def repeated(
    stored: JobDefinition,
    payload: msgspec.Raw,
    now: datetime,
    *,
    run_id: str,
    new_id: str,
    succeeded: bool,
    dropped: bool,
) -> JobDefinition | None:
    """The definition of run `new_id`, which repeats `run_id` with an idempotency key of its own: because that one has
    succeeded, or because the payload is another one. None if it has the definition and the key of that run."""
    if memoryview(payload):
        changed = with_payload(stored, payload, now, dropped=dropped)
        if not succeeded and same_json(changed.payload, stored.payload):
            return None
    elif dropped:
        raise payload_dropped(run_id)
    elif not succeeded:
        return None
    else:
        changed = stored
    return msgspec.structs.replace(changed, spec=msgspec.structs.replace(changed.spec, repeat=new_id))


def payload_dropped(run_id: object) -> Conflict:
    return Conflict(
        f"the payload of run {run_id} was not kept when it succeeded (keep_payload)",
        code="payload_dropped",
        field="payload",
        hint='give a payload, such as {"region": "eu"}, or {} if the task needs none',
    )


def _check_secrets(stored: JobDefinition, changed: JobDefinition) -> None:
    """Raise InvalidInput if another command or call than that of the definition would get secrets. An operator repeats
    runs with other payloads and may not submit jobs, so a payload does not say what gets a secret."""
    names = named_secrets(changed.task, changed.spec.setup)
    if names and _call_of(stored) != _call_of(changed):
        raise InvalidInput(
            f"the payload has another command or call, and the run would get the secret {next(iter(names))!r}",
            code="secret_not_allowed", field="payload",
            hint="secrets are for what the job itself says: leave the command or call as it is, or submit a job",
        )  # fmt: skip


def _call_of(definition: JobDefinition) -> Any:
    found = stored_call(definition.task, definition.spec.command, definition.spec.setup)
    return None if found is None else found[1]


def _stand_in(stored: JobDefinition, payload: msgspec.Raw) -> str | None:
    """A payload in the place of one that was not kept. It says whether the command or the call of the task was in the
    payload. An HTTP call always was. A command was, if it is in the new payload."""
    found = stored_call(stored.task, stored.spec.command, stored.spec.setup)
    if found is None:
        return None
    kind, call = found
    return checks_of(kind).stand_in(call, str(payload, "utf-8", "replace"))
