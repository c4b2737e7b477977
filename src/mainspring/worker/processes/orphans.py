"""Processes that a supervisor and the watchdog left behind, because both were killed: the parent watchdog ends them.

They have become children of the parent watchdog, which is the next subreaper above. The worker counts its requests in
the memory that it shares with the parent watchdog, which writes down the last one that it has fulfilled. The parent
watchdog cannot tell these processes from those that a Python task forked twice, so a request ends both. Those of Python
tasks end with the worker in any case.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct

from mainspring.kernel.clock import LoopClock

_ASKED, _ANSWERED = 12, 16  # after the numbers of death_record.py
_NUMBER = struct.Struct("<I")
_LOOK_EVERY = 0.05


class OrphanRequests:
    """Made before the worker is forked; each side uses its own half."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @property
    def asked(self) -> int:
        return _read(self._memory, _ASKED)

    @property
    def open(self) -> bool:
        return self.asked != _read(self._memory, _ANSWERED)

    def answer(self, number: int) -> None:
        """For the parent watchdog: nothing is left that existed when `number` was asked."""
        _NUMBER.pack_into(self._memory, _ANSWERED, number)

    async def end_all(self, clock: LoopClock) -> None:
        """For the worker: returns when all orphans are gone, or when there is no parent watchdog any more."""
        parent = os.getppid()
        ours = self.asked + 1
        _NUMBER.pack_into(self._memory, _ASKED, ours)
        while _read(self._memory, _ANSWERED) < ours and os.getppid() == parent:
            await clock.sleep(_LOOK_EVERY)


async def process_ended(pid: int) -> None:
    """Returns when the process has ended, and its children have another parent."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _read(memory: mmap.mmap, offset: int) -> int:
    number: int = _NUMBER.unpack_from(memory, offset)[0]
    return number
