"""Where a list of the fires of all jobs ends. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mainspring.domain.errors import InvalidInput

INSTANT = timedelta(microseconds=1)
_AHEAD = timedelta(days=366)
_LAST = datetime(9999, 1, 1, tzinfo=UTC)


def end_of_list(start: datetime, given: datetime | None) -> datetime:
    """Where a list of fires from `start` on ends. Raises InvalidInput if that is not after its start."""
    if given is None:
        return start + min(_AHEAD, _LAST - start)
    if given <= start:
        raise InvalidInput(
            "to is not after from", code="invalid_parameter", field="to", hint="give a later time, or leave it out"
        )
    return given
