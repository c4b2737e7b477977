"""Calls for how long output is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mainspring.sdk.client.calls.common import match_header
from mainspring.sdk.client.core import Call, encode, json_of
from mainspring.wire.log_retention import LogRetentionView

_PATH = "/v1/tenant/log-retention"
_retention = json_of(LogRetentionView)


def log_retention() -> Call[LogRetentionView]:
    """How long the output of runs with certain labels is kept."""
    return Call("GET", _PATH, _retention)


def set_log_retention(rules: Sequence[Mapping[str, Any]], *, if_version: int | None = None) -> Call[LogRetentionView]:
    """Keep the output of runs by label: `[{"labels": {"audit": "yes"}, "keep_logs": "1y"}]`. It replaces all rules.
    With `if_version`, only if they still have that version."""
    body, headers = encode({"rules": rules}), match_header(if_version)
    return Call("PUT", _PATH, _retention, body=body, headers=headers, repeatable=if_version is None)
