"""Process groups: signal one, and know when the last of its members is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05
_PROC = Path("/proc")


def signal_group(group: int, number: signal.Signals) -> None:
    """To every member; a group that is gone, or that changed its user, is left alone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


async def wait_until_gone(group: int, *, timeout: float | None = None, leader_reaped: bool) -> bool:
    """True once no member lives; False when `timeout` seconds did not suffice. There is no event for this, so it looks,
    soon at first and then twenty times a second."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while not group_gone(group, leader_reaped=leader_reaped):
        if deadline is not None and time.monotonic() >= deadline:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return True


def group_gone(group: int, *, leader_reaped: bool) -> bool:
    if leader_reaped:
        # As init of a container we inherit orphans, and a zombie would count as a member for ever. Not before the
        # event loop has had the leader's exit code: this would take it away.
        with suppress(ChildProcessError):
            while os.waitpid(-group, os.WNOHANG)[0]:
                pass
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _only_zombies(group)


def _only_zombies(group: int) -> bool:
    """Members that nobody reaps (an init that does not care) run no more. Without /proc we cannot tell: False."""
    states = []
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                states.append(fields[0])
    return bool(states) and all(state in "ZX" for state in states)
