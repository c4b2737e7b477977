"""Merges the options that a task declares with the fields of a request. A field of the request takes precedence.

Objects (retry, limits, env, required_labels) are merged member by member, and so are `secrets`. `retries` and
`max_retries` replace only the number of attempts. The SDK applies the same rule to keywords
(sdk/tasks/task_options.py), and SQL to the jobs of `mainspring.submit` (store/routines/intake_options.sql).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

import msgspec

from mainspring.domain.intake.schedule import says_when
from mainspring.domain.job import Delivery
from mainspring.wire.fields import PAIRS, SECRETS, VARIABLES, task_options
from mainspring.wire.jobs import JobRequest, MisfireIn, ResourceLimitsIn, RetryIn
from mainspring.wire.schedules import ScheduleIn
from mainspring.wire.tasks import DeclaredOptions

Merged = TypeVar("Merged", RetryIn, ResourceLimitsIn, MisfireIn, ScheduleIn)

_WHOLE = tuple(
    field.name
    for field in task_options()
    if not field.kind.merged and field.kind is not SECRETS and field.name != "delay"
)
_BY_NAME = tuple(field.name for field in task_options() if field.kind in (PAIRS, VARIABLES))


def with_delay(request: JobRequest, options: DeclaredOptions) -> JobRequest:
    """`request` with the delay of its task, unless it says when it runs."""
    if options.delay is None or says_when(request):
        return request
    return msgspec.structs.replace(request, delay=options.delay)


def fill(request: JobRequest, options: DeclaredOptions) -> JobRequest:
    """`request` with `options` as defaults. The delay is left out: steps and changes of a job have none."""
    found: dict[str, Any] = {}
    for name in _WHOLE:
        value = getattr(options, name)
        if value is not None and getattr(request, name) is None:
            found[name] = value
    if request.rate is not None:
        found.pop("rate_limit", None)
    for name in _BY_NAME:
        value = getattr(options, name)
        if value is not None:
            found[name] = {**value, **(getattr(request, name) or {})}
    if options.secrets is not None:
        found["secrets"] = list(dict.fromkeys([*options.secrets, *(request.secrets or ())]))
    if options.limits is not None:
        found["limits"] = merged(options.limits, request.limits or ResourceLimitsIn())
    if options.retry is not None:
        base = options.retry
        if _sets_attempts(request):
            base = msgspec.structs.replace(base, max_attempts=None)
        found["retry"] = merged(base, request.retry or RetryIn())
    return msgspec.structs.replace(request, **found)


def only(options: DeclaredOptions, names: Collection[str]) -> DeclaredOptions:
    """The options with these names."""
    return DeclaredOptions(**{
        name: getattr(options, name) for name in options.__struct_fields__ if name in names
    })  # fmt: skip


def merged(base: Merged, given: Merged) -> Merged:
    """`given` with its Nones filled from `base`."""
    members = {
        name: getattr(given, name) if getattr(given, name) is not None else getattr(base, name)
        for name in given.__struct_fields__
    }
    return type(given)(**members)


def _sets_attempts(request: JobRequest) -> bool:
    """Whether the request sets the number of attempts. The delivery at_most_once sets it to one."""
    return (
        request.retries is not None
        or request.max_retries is not None
        or (request.delivery is not None and request.delivery.lower() == Delivery.AT_MOST_ONCE)
    )
