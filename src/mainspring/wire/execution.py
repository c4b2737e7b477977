"""How a run is executed. The same structs are stored with the job and sent to the worker.

Newer servers store fields here that older servers and workers do not know and must ignore. Requests forbid unknown
fields and have their own structs.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ResourceLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits for all processes of one attempt together, in bytes and seconds. None: the job sets no limit; the worker
    can still have one."""

    memory: int | None = None
    cpu: float | None = None
    processes: int | None = None
    files: int | None = None
    output: int | None = None
    disk: int | None = None


class SuccessRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the response to an HTTP call is a success. `status` contains numbers and classes such as "2xx". `json` is a
    JSONPath that must match a value. The value must equal `equals` if that is given."""

    status: list[int | str] = []
    json: str | None = None
    equals: Any = msgspec.UNSET


class HttpCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The call of the task `http`. A string `body` is sent as text, any other as JSON. The default method is POST with
    a body and GET without."""

    url: str
    method: str = ""
    headers: dict[str, str] = {}
    body: Any = None
    success: SuccessRule | None = None
    follow_redirects: bool = True


class SuccessRuleIn(SuccessRule, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The same in a request, where unknown fields are forbidden."""


class HttpCallIn(HttpCall, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The same in a request, where unknown fields are forbidden."""

    success: SuccessRuleIn | None = None


class RunSetup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a job definition that only executors read. Absent if the job sets none of it."""

    env: dict[str, str] | None = None
    limits: ResourceLimits | None = None
    sandbox: str | None = None
    kill_grace: float | None = None
    http: HttpCall | None = None
    run_as: str | None = None


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt failed, for the retry rules. errors: the class of the error and its base classes ("ValueError",
    "app.billing.CardDeclined"). exit_code: of the process; the negative signal number if a signal killed it."""

    errors: list[str] = []
    exit_code: int | None = None
    http_status: int | None = None
