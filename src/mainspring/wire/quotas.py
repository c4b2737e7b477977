"""Quotas: what an instance administrator allows a tenant, and how much of it the tenant uses."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType


class QuotasRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /v1/tenants/{tenant}/quotas`. A field that is left out stays as it is, and null removes a quota.

    stored_jobs: jobs that wait for a time or recur. submissions_per_second: jobs that are submitted. runs_per_minute:
    starts of runs. queued_runs: runs that wait. concurrent_runs: runs that are with workers. payload_bytes: the payload
    of one job. log_bytes_per_day: output that PostgreSQL stores on one day (UTC). tokens: valid tokens. history_days:
    for how long ended runs are kept, with their payloads and output.
    """

    stored_jobs: int | UnsetType | None = UNSET
    submissions_per_second: int | UnsetType | None = UNSET
    runs_per_minute: int | UnsetType | None = UNSET
    queued_runs: int | UnsetType | None = UNSET
    concurrent_runs: int | UnsetType | None = UNSET
    payload_bytes: int | UnsetType | None = UNSET
    log_bytes_per_day: int | UnsetType | None = UNSET
    tokens: int | UnsetType | None = UNSET
    history_days: int | UnsetType | None = UNSET


class QuotaUse(msgspec.Struct):
    """One quota. limit: null if there is none. used: how much of it is used now; null if it is not counted:
    payload_bytes holds for each payload alone, history_days for each run, and runs are counted where there is a limit.
    near: whether 80 % of it are used."""

    quota: str
    limit: int | None
    used: int | None
    near: bool = False


class TenantUsage(msgspec.Struct):
    """The quotas of a tenant with their use. version: for If-Match; it rises with every change, and is 0 as long as
    nothing was ever set. warnings: a sentence for each quota of which 80 % are used."""

    tenant: str
    quotas: list[QuotaUse]
    version: int
    warnings: list[str] = []
    updated_by: str | None = None
    updated_at: datetime | None = None
