"""Limits of queues and tenants: how many runs at once, how often they start, how many may wait, and pauses."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType


class RateRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A rate such as "100/m", and how many runs may start at once (`burst`). Without a burst: what comes in a tenth of
    a second, at least 1."""

    rate: str
    burst: int | None = None


class GateRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /v1/queues/{name}` and `PUT /v1/tenant/limits`. A field that is left out stays as it is, and
    null removes a limit.

    concurrency: how many runs run at once. rate: how often runs start, as "100/m" or as {"rate": "100/m", "burst": 20}.
    max_depth: how many runs may wait; submissions beyond it get 429. paused: whether no run starts. pause_reason: why,
    in your words; it goes with the pause.
    """

    concurrency: int | UnsetType | None = UNSET
    rate: str | RateRequest | UnsetType | None = UNSET
    max_depth: int | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET
    pause_reason: str | UnsetType | None = UNSET


class QueuePauseRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/queues/{name}:pause`. It may be empty. reason: why, in your words."""

    reason: str | None = None


class PauseRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/pause` and `/v1/resume`. It may be empty. all_tenants: for instance
    administrators, who pause all tenants. reason: why it is paused, in your words."""

    all_tenants: bool = False
    reason: str | None = None


class GateView(msgspec.Struct):
    """The limits of a queue, or of all runs of a tenant (`queue` is null). in_use: how many runs count for
    `concurrency` now. tokens: how many runs may start now by the rate. paused_by: the token that paused it.
    pause_reason: why, in the words of that person. version: for If-Match; it rises with every change, and is 1 as long
    as nothing was ever set. warnings: only in the answer to a change, sentences about what may not be meant, such as a
    queue without jobs and workers."""

    queue: str | None
    paused: bool = False
    paused_by: str | None = None
    paused_at: datetime | None = None
    pause_reason: str | None = None
    concurrency: int | None = None
    in_use: int | None = None
    rate: str | None = None
    burst: int | None = None
    tokens: int | None = None
    max_depth: int | None = None
    version: int = 1
    warnings: list[str] | UnsetType = UNSET
