"""For how long ended runs are kept."""

from __future__ import annotations

import os

from mainspring.domain.errors import InvalidInput

HISTORY_VARIABLE = "MAINSPRING_HISTORY_DAYS"
_HISTORY_DAYS = 30


def history_days() -> int:
    """Raises InvalidInput if the variable is not a number of days."""
    text = os.environ.get(HISTORY_VARIABLE) or str(_HISTORY_DAYS)
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 36_500):
        raise InvalidInput(
            f"{text!r} is not a number of days", field=HISTORY_VARIABLE, expected="a number from 1 to 36500"
        )
    return int(text)
