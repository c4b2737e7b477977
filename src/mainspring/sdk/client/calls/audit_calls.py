"""Calls for the audit."""

from __future__ import annotations

from datetime import datetime

from mainspring.sdk.client.calls.common import query_of
from mainspring.sdk.client.core import Call, json_of
from mainspring.wire.audit import AuditChain, AuditList

_list = json_of(AuditList)
_chain = json_of(AuditChain)


def audit(
    *, who: str | None = None, operation: str | None = None, kind: str | None = None, id: str | None = None,
    since: datetime | str | None = None, until: datetime | str | None = None, limit: int | None = None,
    cursor: str | None = None,
) -> Call[AuditList]:  # fmt: skip
    """One page of changes, newest first: who changed what. `who`: the name or the id of a token. `kind` and `id`: what
    was changed, such as `job` and its id."""
    params = query_of(
        {
            "who": who, "operation": operation, "kind": kind, "id": id,
            "since": since, "until": until, "limit": limit, "cursor": cursor,
        }
    )  # fmt: skip
    return Call("GET", "/v1/audit", _list, params=params)


def audit_chain(*, first: int = 1, all_tenants: bool = False, limit: int | None = None) -> Call[AuditChain]:
    """Links of the chain of hashes over the changes, from `first` on. `all_tenants`: of what concerns all tenants."""
    params = query_of({"from": first, "all_tenants": "true" if all_tenants else None, "limit": limit})
    return Call("GET", "/v1/audit/chain", _chain, params=params)
