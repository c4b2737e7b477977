"""The field `unique` of a job: its key, how long the key is taken, and what becomes of another submission with it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.formats import DurationIn
from mainspring.wire.states import words

UNIQUE_STATES = ("scheduled", "held", "queued", "running")
UNIQUE_CHOICES = ("keep", "replace", "later")
UniqueStateWord = Annotated[str, words("UniqueState", *UNIQUE_STATES)]
UniqueElseWord = Annotated[str, words("UniqueElse", *UNIQUE_CHOICES)]
UniqueAnswerWord = Annotated[str, words("UniqueAnswer", "kept", "replaced", "later")]
UniqueField = Annotated[
    str,
    Meta(
        description="task, name, queue, a label (labels.region) or a value of the payload (payload.account).",
        extra_json_schema={"examples": ["task", "payload.account", "labels.region"]},
    ),
]
_NAMES = {"for_": "for", "while_": "while", "else_": "else"}


class UniqueIn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True, rename=_NAMES):
    """by: jobs whose values of these fields are equal have the same key. The job has the key while it is in one of the
    states `while`, and no longer than `for`. else: what becomes of another submission with the key. keep: nothing.
    replace: its payload goes into the job, if that has not started. later: the job runs at the time of the
    submission."""

    by: list[UniqueField]
    for_: DurationIn | None = None
    while_: list[UniqueStateWord] | None = None
    else_: UniqueElseWord | None = None


class Unique(msgspec.Struct, frozen=True, rename=_NAMES):
    """The rule with all its values, as it is stored and shown. `for` is in seconds."""

    by: list[UniqueField]
    for_: float
    while_: list[UniqueStateWord]
    else_: UniqueElseWord
