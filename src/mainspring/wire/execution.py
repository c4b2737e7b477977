"""How a run is executed. The same structs are stored with the job and sent to the worker.

Newer servers store fields here that older servers and workers do not know and must ignore. Requests forbid unknown
fields and have their own structs.
"""

from __future__ import annotations

import msgspec

from mainspring.wire.field_structs import with_kind_fields
from mainspring.wire.kind_fields import ShownCalls
from mainspring.wire.secrets import Variables


class ResourceLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits for all processes of one attempt together, in bytes and seconds. None: the job sets no limit; the worker
    can still have one."""

    memory: int | None = None
    cpu: float | None = None
    processes: int | None = None
    files: int | None = None
    output: int | None = None
    disk: int | None = None


@with_kind_fields("value", after="kill_grace")
class RunSetup(ShownCalls, msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a job definition that only executors read. Absent if the job sets none of it."""

    env: Variables | None = None
    limits: ResourceLimits | None = None
    sandbox: str | None = None
    kill_grace: float | None = None
    run_as: str | None = None
    secrets: list[str] | None = None


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt failed, for the retry rules. errors: the class of the error and its base classes ("ValueError",
    "app.billing.CardDeclined"). exit_code: of the process; the negative signal number if a signal killed it."""

    errors: list[str] = []
    exit_code: int | None = None
    http_status: int | None = None
