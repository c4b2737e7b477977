"""Checks of kinds of task that take so long that a thread makes them, before intake asks for the result."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.kinds.registry import task_kinds
from mainspring.wire.jobs import JobPatch, JobRequest

_SLOW_KINDS = [kind for kind in task_kinds() if kind.prepares]


async def prepare_checks(requests: Sequence[JobRequest] | Sequence[JobPatch]) -> None:
    """Raise InvalidInput if the requests are too much work."""
    for kind in _SLOW_KINDS:
        name, field = kind.name, kind.field
        if own := [one for one in requests if getattr(one, field) or one.task == name or one.job_type == name]:
            await kind.part("prepare").prepare(own)
