"""Messages about how long the output of runs with certain labels is kept."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.wire.formats import DurationIn


class LabelRetentionIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The output of runs that have all of these labels is kept so long, from its first byte on."""

    labels: dict[str, str]
    keep_logs: DurationIn


class LogRetentionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `PUT /v1/tenant/log-retention`: all rules."""

    rules: list[LabelRetentionIn]


class LabelRetention(msgspec.Struct):
    """keep_logs: in seconds."""

    labels: dict[str, str]
    keep_logs: float


class LogRetentionView(msgspec.Struct):
    """version: for If-Match; it is 0 as long as nothing was ever set."""

    rules: list[LabelRetention]
    version: int
    updated_at: datetime | None = None
    updated_by: str | None = None
