"""The fields of steps that wait."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from mainspring.domain.run_key import rfc3339
from mainspring.sdk.workflows.references import Reference

OnTimeout = Literal["fail", "skip", "continue"]


def sleep_field(duration: Any, until: Any) -> Any:
    """The field `sleep` of a step. Raises ValueError unless exactly one of both is given."""
    given = [value for value in (duration, until) if isinstance(value, Reference) or value is not None]
    if len(given) != 1:
        raise ValueError("a sleep needs a duration, or until=")
    [value] = given
    if value is duration:
        return duration_field(value)
    return {"until": rfc3339(value) if isinstance(value, datetime) else value}


def duration_field(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def wait_field(given: Mapping[str, Any], *, timeout: Any, on_timeout: OnTimeout | None) -> dict[str, Any]:
    """The field `wait` of a step."""
    fields = {**given, "timeout": duration_field(timeout), "on_timeout": on_timeout}
    return {name: value for name, value in fields.items() if isinstance(value, Reference) or value is not None}
