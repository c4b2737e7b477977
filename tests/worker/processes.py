"""Waiting for processes that are not our children: the kernel says when one is gone."""

from __future__ import annotations

import asyncio
import os
import select
from pathlib import Path


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ended_within(pid: int, seconds: float) -> bool:
    """True once `pid` has ended; False when it is still there after `seconds`."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


async def ended_soon(pid: int, seconds: float = 30.0) -> bool:
    return await asyncio.to_thread(ended_within, pid, seconds)


async def written(path: Path, lines: int = 1, seconds: float = 30.0) -> list[str]:
    """The lines that a process has written to `path`, once there are enough of them."""
    async with asyncio.timeout(seconds):
        while not path.exists() or len(path.read_text().splitlines()) < lines:
            await asyncio.sleep(0.005)  # a file has no event; this is bounded and waits for the deed, not for time
    return path.read_text().splitlines()
