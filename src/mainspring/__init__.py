"""Mainspring runs jobs on time, with one run per fire time, on any number of machines.

    from mainspring import Context, Mainspring

    app = Mainspring()

    @app.task
    async def hello(ctx: Context, name: str) -> str:
        return f"hello {name}"

Names are imported when they are first used, so that `import mainspring` and the command line are fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.domain.errors import (
        BodyTooSlow,
        Conflict,
        Fenced,
        Forbidden,
        InvalidBatch,
        InvalidInput,
        MainspringError,
        NotFound,
        NotSupportedYet,
        PayloadTooLarge,
        QueueFull,
        TooManyRequests,
        Unauthorized,
        Unavailable,
        Unreadable,
        VersionMismatch,
        WrongMediaType,
    )
    from mainspring.kernel.version import VERSION as __version__  # noqa: N811 - the name is a Python convention
    from mainspring.sdk.app.app import Mainspring
    from mainspring.sdk.client.async_client import AsyncClient
    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.field_types import (
        CircuitBreakerOptions,
        ConcurrencyOptions,
        MisfireOptions,
        RateLimitOptions,
        ResourceLimitOptions,
        RetryOptions,
        RetryRuleOptions,
        UniqueOptions,
    )
    from mainspring.sdk.client.handle import AsyncHandle, Handle
    from mainspring.sdk.client.workflow_handle import AsyncWorkflowRun, WorkflowRun
    from mainspring.sdk.errors import BadPayload, GiveUp, Retry, RunFailed, Snooze
    from mainspring.sdk.exactly_once.once import exactly_once, exactly_once_table, forget_before
    from mainspring.sdk.tasks.context import Context
    from mainspring.sdk.tasks.task import Task
    from mainspring.sdk.workflows.step import Step
    from mainspring.sdk.workflows.workflow import Workflow

__all__ = [
    "AsyncClient",
    "AsyncHandle",
    "AsyncWorkflowRun",
    "BadPayload",
    "BodyTooSlow",
    "CircuitBreakerOptions",
    "Client",
    "ConcurrencyOptions",
    "Conflict",
    "Context",
    "Fenced",
    "Forbidden",
    "GiveUp",
    "Handle",
    "InvalidBatch",
    "InvalidInput",
    "Mainspring",
    "MainspringError",
    "MisfireOptions",
    "NotFound",
    "NotSupportedYet",
    "OverQuota",
    "PayloadTooLarge",
    "QueueFull",
    "QuotaExceeded",
    "RateLimitOptions",
    "ResourceLimitOptions",
    "Retry",
    "RetryOptions",
    "RetryRuleOptions",
    "RunFailed",
    "Snooze",
    "Step",
    "Task",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UniqueOptions",
    "Unreadable",
    "VersionMismatch",
    "Workflow",
    "WorkflowRun",
    "WrongMediaType",
    "__version__",
    "exactly_once",
    "exactly_once_table",
    "forget_before",
]

_HOMES = {
    "AsyncClient": "mainspring.sdk.client.async_client",
    "AsyncHandle": "mainspring.sdk.client.handle",
    "AsyncWorkflowRun": "mainspring.sdk.client.workflow_handle",
    "BadPayload": "mainspring.sdk.errors",
    "CircuitBreakerOptions": "mainspring.sdk.client.field_types",
    "Client": "mainspring.sdk.client.client",
    "ConcurrencyOptions": "mainspring.sdk.client.field_types",
    "Context": "mainspring.sdk.tasks.context",
    "GiveUp": "mainspring.sdk.errors",
    "Handle": "mainspring.sdk.client.handle",
    "Mainspring": "mainspring.sdk.app.app",
    "MisfireOptions": "mainspring.sdk.client.field_types",
    "RateLimitOptions": "mainspring.sdk.client.field_types",
    "ResourceLimitOptions": "mainspring.sdk.client.field_types",
    "Retry": "mainspring.sdk.errors",
    "RetryOptions": "mainspring.sdk.client.field_types",
    "RetryRuleOptions": "mainspring.sdk.client.field_types",
    "RunFailed": "mainspring.sdk.errors",
    "Snooze": "mainspring.sdk.errors",
    "Step": "mainspring.sdk.workflows.step",
    "Task": "mainspring.sdk.tasks.task",
    "UniqueOptions": "mainspring.sdk.client.field_types",
    "Workflow": "mainspring.sdk.workflows.workflow",
    "WorkflowRun": "mainspring.sdk.client.workflow_handle",
    "__version__": "mainspring.kernel.version",
    "exactly_once": "mainspring.sdk.exactly_once.once",
    "exactly_once_table": "mainspring.sdk.exactly_once.once",
    "forget_before": "mainspring.sdk.exactly_once.once",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mainspring' has no attribute {name!r}")
    home = import_module(_HOMES.get(name, "mainspring.domain.errors"))
    value = getattr(home, "VERSION" if name == "__version__" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
