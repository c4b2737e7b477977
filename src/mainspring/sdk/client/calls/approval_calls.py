"""Calls for approvals: steps of workflows that wait for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.sdk.client.calls.common import query_of, verb
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.approvals import ApprovalList, Decided

_list = json_of(ApprovalList)
_decided = json_of(Decided)


def approvals(*, everybody: bool = False, limit: int | None = None, cursor: str | None = None) -> Call[ApprovalList]:
    """One page of the steps that wait for the decision of this caller, newest first; with `everybody` also those that
    others decide."""
    shown = "true" if everybody else None
    return Call("GET", "/v1/approvals", _list, params=query_of({"everybody": shown, "limit": limit, "cursor": cursor}))


def approve(run_id: str, fields: Mapping[str, Any] | None = None, *, reason: str | None = None) -> Call[Decided]:
    """Approve the step `run_id`, which succeeds with these fields in its result. Not repeated after a lost response."""
    given = {"fields": fields, "reason": reason}
    body = encode({name: value for name, value in given.items() if value is not None})
    return verb(_path(run_id, ":approve"), _decided, body=body, repeatable=False)


def reject(run_id: str, *, reason: str | None = None) -> Call[Decided]:
    """Reject the step `run_id`, which fails. Not repeated after a lost response."""
    body = encode({} if reason is None else {"reason": reason})
    return verb(_path(run_id, ":reject"), _decided, body=body, repeatable=False)


def _path(run_id: str, rest: str) -> str:
    return f"/v1/approvals/{segment(run_id)}{rest}"
