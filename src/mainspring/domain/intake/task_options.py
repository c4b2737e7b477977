"""How the options that a task declares meet those of a request: the request's own words win, one by one.

Objects (retry, limits, env, required_labels) are laid together member by member; `retries` and `max_retries` are words
about the number of attempts alone. The SDK does the same to Python's fields (sdk/app/task_options.py), and SQL to its
own (store/routines/intake_options.sql).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

import msgspec

from mainspring.domain.job import Delivery
from mainspring.wire.jobs import JobRequest, MisfireIn, ResourceLimitsIn, RetryIn
from mainspring.wire.tasks import DeclaredOptions

Laid = TypeVar("Laid", RetryIn, ResourceLimitsIn, MisfireIn)

_WHOLE = ("queue", "priority", "timeout", "run_timeout", "kill_grace", "delivery")
_BY_NAME = ("env", "required_labels")


def fill(request: JobRequest, options: DeclaredOptions) -> JobRequest:
    """`request`, with `options` where it says nothing."""
    found: dict[str, Any] = {}
    for name in _WHOLE:
        value = getattr(options, name)
        if value is not None and getattr(request, name) is None:
            found[name] = value
    for name in _BY_NAME:
        value = getattr(options, name)
        if value is not None:
            found[name] = {**value, **(getattr(request, name) or {})}
    if options.limits is not None:
        found["limits"] = laid_over(options.limits, request.limits or ResourceLimitsIn())
    if options.retry is not None:
        base = options.retry
        if _says_how_often(request):
            base = msgspec.structs.replace(base, max_attempts=None)
        found["retry"] = laid_over(base, request.retry or RetryIn())
    return msgspec.structs.replace(request, **found)


def only(options: DeclaredOptions, names: Collection[str]) -> DeclaredOptions:
    """`options` as far as they are about these fields."""
    return DeclaredOptions(**{
        name: getattr(options, name) for name in options.__struct_fields__ if name in names
    })  # fmt: skip


def laid_over(base: Laid, given: Laid) -> Laid:
    """`given` with its Nones filled from `base`."""
    merged = {
        name: getattr(given, name) if getattr(given, name) is not None else getattr(base, name)
        for name in given.__struct_fields__
    }
    return type(given)(**merged)


def _says_how_often(request: JobRequest) -> bool:
    """Whether the number of attempts is the request's: it gives one, or asks for the delivery that has one only."""
    return (
        request.retries is not None
        or request.max_retries is not None
        or (request.delivery is not None and request.delivery.lower() == Delivery.AT_MOST_ONCE)
    )
