"""Compiles the JSONPaths of http jobs in a thread, before intake asks about them."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.compute_thread import in_compute_thread
from mainspring.kernel.time_slices import TimeSlices
from mainspring.kinds.http.path_memory import compile_all, uncompiled_path
from mainspring.wire.jobs import JobPatch, JobRequest

MOST_PATHS = 1000  # new ones in one request
MOST_CHARACTERS = 100_000  # of these: 1 s of a thread at worst
_AT_ONCE = 2000  # characters: 20 ms. Then the paths of other requests have a turn.


async def prepare(requests: Sequence[JobRequest] | Sequence[JobPatch]) -> None:
    """Raise InvalidInput if there are too many different paths that are not known yet."""
    paths: set[str] = set()
    slices = TimeSlices()
    for request in requests:
        if (path := uncompiled_path(request)) is not None:
            paths.add(path)
        if slices.over:
            await slices.pause()
    if len(paths) > MOST_PATHS or sum(map(len, paths)) > MOST_CHARACTERS:
        raise InvalidInput(
            f"the jobs have {len(paths)} different JSONPaths that are new here", field="http.success.json",
            expected=f"at most {MOST_PATHS} in one request, and {MOST_CHARACTERS} characters",
            hint="send the jobs in smaller batches",
        )  # fmt: skip
    part: list[str] = []
    for path in paths:
        part.append(path)
        if sum(map(len, part)) >= _AT_ONCE:
            await in_compute_thread(compile_all, part)
            part = []
    if part:
        await in_compute_thread(compile_all, part)
