"""`submit(..., job_id="nightly", if_exists="replace")`: what becomes of a submission whose job_id is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from mainspring.domain.errors import Conflict, InvalidInput

IfExists = Literal["replace", "keep"]
TRIES = 3  # the job may end between a refusal and its change
_ONLY_NEW = ("job_id", "idempotency_key", "unique")


def checked_if_exists(if_exists: IfExists | None, fields: Mapping[str, Any]) -> None:
    """Raise InvalidInput unless the option can have an effect."""
    if if_exists is None:
        return
    if if_exists not in ("replace", "keep"):
        raise InvalidInput(f"{if_exists!r} is not a choice", field="if_exists", expected='"replace" or "keep"')
    if fields.get("job_id") is None:
        raise InvalidInput("if_exists needs the id of the job", field="job_id", hint="give job_id=")


def is_taken(error: Conflict, if_exists: IfExists | None) -> bool:
    """Whether the submission was refused because of its job_id, and the caller said what to do then."""
    return if_exists is not None and error.code == "job_exists"


def replacing(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the submission as a change of the job that has its id."""
    return {name: value for name, value in fields.items() if name not in _ONLY_NEW}
