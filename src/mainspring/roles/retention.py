"""For how long ended runs, entries of the audit, and events of applications are kept."""

from __future__ import annotations

import os

from mainspring.domain.audit import LEAST_DAYS
from mainspring.domain.errors import InvalidInput

HISTORY_VARIABLE = "MAINSPRING_HISTORY_DAYS"
AUDIT_VARIABLE = "MAINSPRING_AUDIT_DAYS"
EVENT_VARIABLE = "MAINSPRING_EVENT_DAYS"
_HISTORY_DAYS = 30
_AUDIT_DAYS = 400
_EVENT_DAYS = 7
_MOST = 36_500


def history_days() -> int:
    """Raises InvalidInput if the variable is not a number of days."""
    return _days(HISTORY_VARIABLE, _HISTORY_DAYS, 1)


def audit_days() -> int:
    """Raises InvalidInput if the variable is not a number of days."""
    return _days(AUDIT_VARIABLE, _AUDIT_DAYS, LEAST_DAYS)


def event_days() -> int:
    """Raises InvalidInput if the variable is not a number of days."""
    return _days(EVENT_VARIABLE, _EVENT_DAYS, 1)


def _days(variable: str, default: int, least: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not (text.isascii() and text.isdigit() and least <= int(text) <= _MOST):
        raise InvalidInput(
            f"{text!r} is not a number of days", field=variable, expected=f"a number from {least} to {_MOST}"
        )
    return int(text)
