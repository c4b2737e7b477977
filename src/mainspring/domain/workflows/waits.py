"""Waits: what a step waits for without a slot.

A step that waits is a run of the task `mainspring.wait`. Its payload says for what: `{"sleep": "3d"}`. It may have
references, so it is read again when the step is ready (domain/intake/waits.py).
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.durations import format_duration

FAIL, SKIP, CONTINUE = "fail", "skip", "continue"  # when the timeout of a wait is over


class WaitKind(IntEnum):
    """The number in `waits.kind`."""

    SLEEP = 1
    APPROVAL = 2
    EVENT = 3
    CALLBACK = 4
    WORKFLOW = 5


class ApprovalField(msgspec.Struct, frozen=True, omit_defaults=True):
    """What who approves fills in."""

    type: str = "string"
    required: bool = True
    title: str | None = None
    options: list[str | int | float] | None = None


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step waits for. seconds, until: how long a sleep takes. timeout, on_timeout: of other waits. name: of the
    approval, the event or the workflow. by: who may decide; fields: what is filled in then; details: what is shown, or
    the parameters of the workflow. key: of the event, '' for one without. since: an event up to so many seconds before
    the wait counts."""

    kind: int
    seconds: float | None = None
    until: datetime | None = None
    timeout: float | None = None
    on_timeout: str = FAIL
    name: str = ""
    by: list[str] = []
    fields: dict[str, ApprovalField] = {}
    details: Any = None
    key: str = ""
    since: float | None = None

    @property
    def wakes_after(self) -> float | None:
        """The seconds after which its time comes, if it is not at a certain moment."""
        return self.seconds if self.kind == WaitKind.SLEEP else self.timeout

    def in_words(self, wake_at: datetime | None, child: UUID | None = None) -> str:
        """What it waits for, in a few words. child: the run of the workflow that it has started."""
        until = "" if wake_at is None else f"until {wake_at:%Y-%m-%dT%H:%M:%SZ}"
        if self.kind == WaitKind.SLEEP:
            return f"asleep {until}".strip()
        if child is not None:
            return f"waiting for run {child} of the workflow {self.name!r}"
        return f"waiting for {self.what}" + (f", {until}" if until else "")

    @property
    def what(self) -> str:
        """What it waits for, as a noun."""
        if self.kind == WaitKind.EVENT:
            return f"the event {self.name!r} " + (f"with the key {self.key!r}" if self.key else "without a key")
        if self.kind == WaitKind.CALLBACK:
            return "a callback"
        if self.kind == WaitKind.WORKFLOW:
            return f"a run of the workflow {self.name!r}"
        return f"the approval {self.name!r} by {' or '.join(self.by)}"

    @property
    def reason_of_timeout(self) -> str:
        """Why it ends when its timeout is over."""
        return f"timed out after {format_duration(self.timeout or 0.0)}: {self.what} did not come"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Wait).decode


def wait_to_text(wait: Wait) -> str:
    return _encode(wait).decode()


def wait_from_text(text: str) -> Wait:
    return _decode(text)
