"""Calls for the quotas of tenants."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from mainspring.sdk.client.calls.common import match_header
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.quotas import QuotasRequest, TenantUsage

_usage = json_of(TenantUsage)


def tenant_usage(tenant: str) -> Call[TenantUsage]:
    """The quotas of a tenant, and how much of them is used: of the own tenant, or of any for an instance
    administrator."""
    return Call("GET", f"/v1/tenants/{segment(tenant)}/usage", _usage)


def set_quotas(
    tenant: str,
    *,
    stored_jobs: int | UnsetType | None = UNSET,
    submissions_per_second: int | UnsetType | None = UNSET,
    runs_per_minute: int | UnsetType | None = UNSET,
    queued_runs: int | UnsetType | None = UNSET,
    concurrent_runs: int | UnsetType | None = UNSET,
    payload_bytes: int | UnsetType | None = UNSET,
    log_bytes_per_day: int | UnsetType | None = UNSET,
    tokens: int | UnsetType | None = UNSET,
    history_days: int | UnsetType | None = UNSET,
    if_version: int | None = None,
) -> Call[TenantUsage]:
    """Set quotas of a tenant, as an instance administrator. What is left out stays as it is, and None removes a quota.
    With `if_version`, only if they still have that version."""
    body = encode(
        QuotasRequest(
            stored_jobs, submissions_per_second, runs_per_minute, queued_runs, concurrent_runs, payload_bytes,
            log_bytes_per_day, tokens, history_days,
        )
    )  # fmt: skip
    path, headers = f"/v1/tenants/{segment(tenant)}/quotas", match_header(if_version)
    return Call("PUT", path, _usage, body=body, headers=headers, repeatable=if_version is None)
