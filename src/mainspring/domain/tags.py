"""Versions and tags of objects. A tag is for objects that have no version: what decides the effect of a change, as a
short text for ETag and If-Match.

A change with a tag is refused if the object has another one, as it is with a version. Two objects with the same tag
are equal for a client that changes them, so nothing has to be stored for it.

    run            its state, and its fence, which rises when it changes hands
    workflow run   whether it has ended, and how often parts of it ran again
    dead letter    its attempts: it does not change
    limit          the number, what is declared, who has set it, the order
    breaker        since when it is open, or the failures in a row
    worker, token, operation, backfill   the state
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

from mainspring.domain.errors import Conflict, VersionMismatch
from mainspring.domain.transitions import StoredState
from mainspring.domain.worker_state import WorkerState

TAG = "[a-z0-9-]{1,64}"
_WORDS = {int(state): state.name.lower() for state in StoredState}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run_tag(state: int, fence: int) -> str:
    return f"{_WORDS[state]}-{fence}"


def workflow_run_tag(*, ended: bool, reruns: int) -> str:
    return f"{'ended' if ended else 'live'}-{reruns}"


def dead_letter_tag(attempts: int) -> str:
    return f"dead-{attempts}"


def limit_tag(slots: int | None, declared: int | None, *, pinned: bool, strict: bool) -> str:
    numbers = "-".join("none" if number is None else str(number) for number in (slots, declared))
    return f"{numbers}-{'set' if pinned else 'declared'}-{'strict' if strict else 'priority'}"


def breaker_tag(failed: int, opened_at: datetime | None) -> str:
    if opened_at is None:
        return f"closed-{failed}"
    return f"open-{(opened_at - _EPOCH) // timedelta(microseconds=1)}"


def worker_tag(state: int) -> str:
    return WorkerState(state).name.lower()


def token_tag(revoked_at: datetime | None) -> str:
    return "valid" if revoked_at is None else "revoked"


def state_tag(state: str) -> str:
    """The tag of an operation."""
    return state.lower()


def backfill_tag(state: str, concurrency: int) -> str:
    return f"{state.lower()}-{concurrency}"


def check_tag(noun: str, present: str, wanted: str | None) -> None:
    """Raise VersionMismatch unless the object has the wanted tag. None means any."""
    if wanted is not None and wanted != present:
        raise VersionMismatch(
            f'the {noun} is at "{present}", not "{wanted}"', field="If-Match",
            hint=f"read the {noun} again and repeat the change",
        )  # fmt: skip


def check_version(noun: str, present: int, wanted: int | None) -> None:
    """As `check_tag`, for objects that have a version."""
    if wanted is not None and wanted != present:
        raise VersionMismatch(
            f"the {noun} has version {present}, not {wanted}", field="If-Match",
            hint=f"read the {noun} again and repeat the change",
        )  # fmt: skip


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


def check_named_version(noun: str, name: str, row: _Versioned | None, wanted: int | None) -> None:
    """As `check_version`, for objects with a name, which may not exist."""
    if wanted is None or (row is not None and row.version == wanted):
        return
    found = f"there is no {noun} {name!r}" if row is None else f"the {noun} has version {row.version}"
    raise VersionMismatch(
        f"{found}, not version {wanted}", field="If-Match", hint=f"read the {noun} again and repeat the change"
    )


def changed_meanwhile(what: str) -> Conflict:
    """A guard of the change matched no row: another transaction has changed it since it was read."""
    return Conflict(f"{what} changed meanwhile", code="changed_meanwhile", hint="try again")
