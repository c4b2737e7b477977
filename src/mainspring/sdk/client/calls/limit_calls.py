"""Calls for queues, limits, pauses and circuit breakers."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from mainspring.domain.errors import InvalidInput
from mainspring.sdk.client.calls.common import match_header, query_of, verb
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.sdk.client.server_warnings import warning_of
from mainspring.wire.gates import GateRequest, GateView, PauseRequest, QueuePauseRequest, RateRequest
from mainspring.wire.limits import BreakerList, BreakerView, LimitDetails, LimitList, LimitRequest
from mainspring.wire.runs import (
    QueueList,
    QueueView,
)

_gate = json_of(GateView)
_changed_gate = warning_of(GateView)
_queue = json_of(QueueView)
_queue_list = json_of(QueueList)
_breaker = json_of(BreakerView)
_breaker_list = json_of(BreakerList)
_limit = json_of(LimitDetails)
_limit_list = json_of(LimitList)


def queues() -> Call[QueueList]:
    """All queues with depth, oldest run and rate."""
    return Call("GET", "/v1/queues", _queue_list)


def limits(*, q: str | None = None, limit: int | None = None, cursor: str | None = None) -> Call[LimitList]:
    """One page of limits, by name. `q`: a part of the name."""
    return Call("GET", "/v1/limits", _limit_list, params=query_of({"q": q, "limit": limit, "cursor": cursor}))


def limit(limit_id: int) -> Call[LimitDetails]:
    """A limit with its lines: who has its slots, and how many runs wait."""
    return Call("GET", f"/v1/limits/{limit_id}", _limit)


def set_limit(
    limit_id: int, limit: int | None, *, order: str | None = None, if_match: str | None = None
) -> Call[LimitDetails]:
    """Set how many runs there may be at once. None returns to what jobs and tasks declare. `order`: "priority" ends
    strict order. With `if_match`, only if it still has that `etag`."""
    body, headers = encode(LimitRequest(limit, order)), match_header(if_match)
    return Call("PUT", f"/v1/limits/{limit_id}", _limit, body=body, headers=headers, repeatable=if_match is None)


def queue(name: str) -> Call[QueueView]:
    """The queue `name`."""
    return Call("GET", f"/v1/queues/{segment(name)}", _queue)


def set_queue_limits(
    name: str,
    *,
    concurrency: int | UnsetType | None = UNSET,
    rate: str | UnsetType | None = UNSET,
    burst: int | None = None,
    max_depth: int | UnsetType | None = UNSET,
    if_version: int | None = None,
) -> Call[GateView]:
    """Set limits of a queue: how many runs run at once, how often they start (`"100/m"`, with a `burst`), and how many
    may wait. What is left out stays as it is, and None removes a limit. With `if_version`, only if they still have that
    version."""
    return _set_limits(f"/v1/queues/{segment(name)}", concurrency, rate, burst, max_depth, if_version)


def pause_queue(name: str, *, reason: str | None = None, if_version: int | None = None) -> Call[GateView]:
    """Start no run of the queue until it is resumed. When this returns, no worker is given one any more. `reason` is
    shown where people look: in the list of queues, and as the answer to why a run waits."""
    body = encode(QueuePauseRequest(reason))
    return verb(f"/v1/queues/{segment(name)}:pause", _changed_gate, body=body, only_if=if_version)


def resume_queue(name: str, *, if_version: int | None = None) -> Call[GateView]:
    """Resume a paused queue."""
    return verb(f"/v1/queues/{segment(name)}:resume", _changed_gate, only_if=if_version)


def tenant_limits() -> Call[GateView]:
    """The limits of all runs of the tenant."""
    return Call("GET", "/v1/tenant/limits", _gate)


def set_tenant_limits(
    *,
    concurrency: int | UnsetType | None = UNSET,
    rate: str | UnsetType | None = UNSET,
    burst: int | None = None,
    max_depth: int | UnsetType | None = UNSET,
    if_version: int | None = None,
) -> Call[GateView]:
    """Set limits of all runs of the tenant, in addition to those of its queues. See `set_queue_limits`."""
    return _set_limits("/v1/tenant/limits", concurrency, rate, burst, max_depth, if_version)


def pause_all(*, all_tenants: bool = False, reason: str | None = None, if_version: int | None = None) -> Call[GateView]:
    """Start no run of the tenant, or of all tenants, until `resume_all`. `reason` is shown where people look."""
    return verb("/v1/pause", _gate, body=encode(PauseRequest(all_tenants, reason)), only_if=if_version)


def resume_all(*, all_tenants: bool = False, if_version: int | None = None) -> Call[GateView]:
    """Resume what `pause_all` paused. Queues that were paused one by one stay paused."""
    return verb("/v1/resume", _gate, body=encode(PauseRequest(all_tenants)), only_if=if_version)


def breakers() -> Call[BreakerList]:
    """The circuit breakers of jobs and tasks, open ones first."""
    return Call("GET", "/v1/breakers", _breaker_list)


def reset_breaker(breaker_id: str | int, *, if_match: str | None = None) -> Call[BreakerView]:
    """Close a circuit breaker and forget its failures. With `if_match`, only if it still has that `etag`."""
    return verb(f"/v1/breakers/{segment(str(breaker_id))}:reset", _breaker, only_if=if_match)


def _set_limits(
    path: str,
    concurrency: int | UnsetType | None,
    rate: str | UnsetType | None,
    burst: int | None,
    max_depth: int | UnsetType | None,
    if_version: int | None,
) -> Call[GateView]:
    if burst is not None and not isinstance(rate, str):
        raise InvalidInput("a burst belongs to a rate", field="burst", hint='give both: rate="100/m", burst=20')
    wanted = RateRequest(rate, burst) if isinstance(rate, str) and burst is not None else rate
    body, headers = encode(GateRequest(concurrency, wanted, max_depth)), match_header(if_version)
    return Call("PUT", path, _changed_gate, body=body, headers=headers, repeatable=if_version is None)
