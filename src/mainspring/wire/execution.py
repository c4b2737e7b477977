"""How a run is executed: what a job says about it, and what its worker is told. The same structs in both places.

Newer servers store fields here that older servers and workers do not know and must ignore. Requests forbid unknown
fields and have structs of their own.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ResourceLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the processes of one attempt may use, all of them together. Bytes and seconds; None is no limit of the
    job's own (the worker may have one)."""

    memory: int | None = None
    cpu: float | None = None
    processes: int | None = None
    files: int | None = None
    output: int | None = None


class SuccessRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the answer to an HTTP call is a success. `status` holds numbers and classes such as "2xx"; `json` is a
    JSONPath that must find something, equal to `equals` when that is given."""

    status: list[int | str] = []
    json: str | None = None
    equals: Any = msgspec.UNSET


class HttpCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The task `http`. A `body` that is no string is sent as JSON; the method is POST with a body and GET without."""

    url: str
    method: str = ""
    headers: dict[str, str] = {}
    body: Any = None
    success: SuccessRule | None = None
    follow_redirects: bool = True


class SuccessRuleIn(SuccessRule, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """As it is given in a request."""


class HttpCallIn(HttpCall, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """As it is given in a request."""

    success: SuccessRuleIn | None = None


class RunSetup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a definition that only executors look at; absent when the job says nothing about it."""

    env: dict[str, str] | None = None
    limits: ResourceLimits | None = None
    sandbox: str | None = None
    kill_grace: float | None = None
    http: HttpCall | None = None


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt failed, for the retry rules: the error's class with its bases ("ValueError",
    "app.billing.CardDeclined"), a process's exit code (minus the signal when one killed it), an HTTP status."""

    errors: list[str] = []
    exit_code: int | None = None
    http_status: int | None = None
