"""Warns of code that waits for a run and blocks the event loop meanwhile, with the line of the caller."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[2])


class BlockingWaitWarning(UserWarning):
    """A blocking call waits for a run on a thread that has a running event loop. Nothing else runs on the loop until
    it returns; in an async task of a worker, that may be the run for which it waits."""


def warn_in_coroutine(instead: str) -> None:
    """Warn if an event loop runs in this thread. Python shows the warning once for each line."""
    if "asyncio" not in sys.modules:  # no loop can run; the import takes 40 ms
        return
    from asyncio import get_running_loop

    try:
        get_running_loop()
    except RuntimeError:
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"this waits for a run and blocks the event loop: nothing else runs on it meanwhile. Use `{instead}`.",
        BlockingWaitWarning,
        stacklevel=level,
    )
