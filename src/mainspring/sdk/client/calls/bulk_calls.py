"""Calls for one verb on many jobs, runs or dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mainspring.sdk.client.calls.common import query_of, text_of, verb
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.bulk import Counted, OperationList, OperationView
from mainspring.wire.missed_fires import MissedList

_counted = json_of(Counted)
_operation = json_of(OperationView)
_operation_list = json_of(OperationList)
_missed_list = json_of(MissedList)


def count_matching(target: str, verb: str, filter: Mapping[str, Any]) -> Call[Counted]:
    """How many objects the filter matches. `target`: jobs, runs or dead-letters. The filter has the parameters of the
    list of these."""
    body = {"verb": verb, "filter": _filter(filter), "dry_run": True}
    return Call("POST", f"/v1/{target}:act", _counted, body=encode(body))


def act_on_many(
    target: str,
    verb: str,
    *,
    filter: Mapping[str, Any] | None = None,
    ids: Sequence[str] | None = None,
    expected: int | None = None,
) -> Call[OperationView]:
    """Begin an operation: the verb on what the filter matches, or on these ids. `target` and `verb`: jobs (pause,
    resume, cancel, run_now), runs (cancel, retry) or dead-letters (replay, discard). A filter needs `expected`, the
    number that `count_matching` gave: if clearly more match, Conflict is raised. Not repeated after a lost response."""
    given = {"filter": None if filter is None else _filter(filter), "ids": ids, "expected": expected}
    body = {"verb": verb, **{name: value for name, value in given.items() if value is not None}}
    return Call("POST", f"/v1/{target}:act", _operation, body=encode(body), repeatable=False)


def operation(operation_id: str) -> Call[OperationView]:
    """An operation and its progress."""
    return Call("GET", f"/v1/operations/{segment(operation_id)}", _operation)


def operations(*, state: str | None = None, limit: int | None = None, cursor: str | None = None) -> Call[OperationList]:
    """One page of operations, newest first: all, or those in a state."""
    params = query_of({"state": state, "limit": limit, "cursor": cursor})
    return Call("GET", "/v1/operations", _operation_list, params=params)


def cancel_operation(operation_id: str, *, if_match: str | None = None) -> Call[OperationView]:
    """End the operation. What is done stays done. With `if_match`, only if it still has that `etag`."""
    return verb(f"/v1/operations/{segment(operation_id)}:cancel", _operation, only_if=if_match)


def missed_fires(
    *, job: str | None = None, reason: str | None = None, limit: int | None = None, cursor: str | None = None,
    q: str | None = None,
) -> Call[MissedList]:  # fmt: skip
    """One page of the missed fires of all jobs, as ranges with a reason, newest first. q: a part of the name or the id
    of the job."""
    params = query_of({"job": job, "reason": reason, "q": q, "limit": limit, "cursor": cursor})
    return Call("GET", "/v1/missed-fires", _missed_list, params=params)


def _filter(given: Mapping[str, Any]) -> dict[str, Any]:
    """Times as texts. A single status may be given as a text."""
    found = {}
    for name, value in given.items():
        if value is None:
            continue
        single = name in ("status", "latest_run") and isinstance(value, str)
        found[name] = [value] if single else value if isinstance(value, (str, list, tuple)) else text_of(value)
    return found
