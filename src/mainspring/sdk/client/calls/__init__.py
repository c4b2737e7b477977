"""The calls of the client: one function per route. Each returns the `Call` that a client sends.

A module is imported when one of its calls is first made: all of them take 60 ms, as their messages have many classes.
"""

# ruff: noqa: F403

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.sdk.client.calls.access_calls import *
    from mainspring.sdk.client.calls.approval_calls import *
    from mainspring.sdk.client.calls.audit_calls import *
    from mainspring.sdk.client.calls.bulk_calls import *
    from mainspring.sdk.client.calls.event_calls import *
    from mainspring.sdk.client.calls.file_calls import *
    from mainspring.sdk.client.calls.insight_calls import *
    from mainspring.sdk.client.calls.job_calls import *
    from mainspring.sdk.client.calls.limit_calls import *
    from mainspring.sdk.client.calls.notify_calls import *
    from mainspring.sdk.client.calls.quota_calls import *
    from mainspring.sdk.client.calls.retention_calls import *
    from mainspring.sdk.client.calls.run_calls import *
    from mainspring.sdk.client.calls.schedule_calls import *
    from mainspring.sdk.client.calls.secret_calls import *
    from mainspring.sdk.client.calls.sink_calls import *
    from mainspring.sdk.client.calls.source_calls import *
    from mainspring.sdk.client.calls.user_calls import *
    from mainspring.sdk.client.calls.view_calls import *
    from mainspring.sdk.client.calls.workflow_calls import *

# In the order in which a call is looked for: what programs use most comes first.
_MODULES = (
    *("job_calls", "run_calls", "workflow_calls", "schedule_calls", "file_calls", "event_calls", "approval_calls"),
    *("bulk_calls", "limit_calls", "access_calls", "user_calls", "secret_calls", "notify_calls", "quota_calls"),
    *("retention_calls", "audit_calls", "insight_calls", "view_calls", "sink_calls", "source_calls"),
)


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        for module in _MODULES:
            found = vars(import_module(f"{__name__}.{module}")).get(name)
            if callable(found):
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
