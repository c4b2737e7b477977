"""Messages about approvals: steps of workflows that wait for a person."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mainspring.wire.workflows import ApprovalFieldIn


class ApprovalView(msgspec.Struct, omit_defaults=True):
    """A step that waits for a person. run_id: of the step; it names the approval. by: who may decide. fields: what is
    filled in. details: what its workflow says of it. times_out_at, on_timeout: when it ends without a decision, and
    how. may_decide: whether the caller may."""

    run_id: str
    approval: str
    workflow_id: str
    workflow_run_id: str
    step: str
    by: list[str]
    waits_since: datetime
    may_decide: bool
    fields: dict[str, ApprovalFieldIn] = {}
    details: Any = None
    times_out_at: datetime | None = None
    on_timeout: str = "fail"


class ApprovalList(msgspec.Struct):
    """A page may have fewer approvals than `limit`, or none, while `next` says that more may follow."""

    approvals: list[ApprovalView]
    next: str | None = None


class Approve(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `:approve`. It may be empty. fields: what the approval asks for. reason: why."""

    fields: dict[str, Any] | None = None
    reason: str | None = None


class Reject(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `:reject`. It may be empty."""

    reason: str | None = None


class Decided(msgspec.Struct):
    """How the step has ended. result: what other steps may refer to."""

    run_id: str
    status: str
    approval: str
    by: str
    reason: str | None = None
    result: Any = None
