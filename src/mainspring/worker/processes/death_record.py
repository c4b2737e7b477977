"""What the parent watchdog must know when the worker dies: the data of the death notice, and which exclusive runs have
started.

It is shared memory, which survives the worker. A write costs no system call, cannot be lost, and does not wait for a
watchdog that is stopped. Only the worker and its parent watchdog have the memory, and neither lets other processes of
the same user read it.

    0       1 if the notice is complete
    1       1 if the list of started runs is complete
    2       1 if a server has acknowledged that the worker stops: it holds nothing any more
    3       1 if the worker has been asked to stop
    4       the length of the notice
    8       the number of entries that were ever used
    12, 16  the requests to end orphans (orphans.py)
    24      for how many seconds after the last beat a server may take the worker for alive; 0 if not known
    4096    the notice: JSON
    65536   entries: 16 bytes of run id and 8 bytes of fence. An empty entry is zero.

A worker that is killed while it writes leaves a torn entry, which names no run. The run of that entry has not started.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Container
from typing import Any
from uuid import UUID

from mainspring.worker.incarnation import new_secret

EXIT_FENCED = 70  # the exit code of a worker that ends because no server has heard it in time
CAPACITY = 16 * 1024
_NOTICE, _ENTRIES = 4096, 65536
_ENTRY = struct.Struct("<16sq")
_NUMBER = struct.Struct("<I")
_SECONDS = struct.Struct("<d")
_NOTICE_LENGTH, _USED, _SILENCE = 4, 8, 24
_EMPTY = bytes(_ENTRY.size)

Key = tuple[int, int]


def shared_memory() -> mmap.mmap:
    """Memory for one record. It is shared with processes that are forked later."""
    return mmap.mmap(-1, _ENTRIES + CAPACITY * _ENTRY.size)


class DeathRecord:
    """The worker's end. `servers` are the addresses to which the notice is sent, `ca` the file of the authorities that
    are trusted, if not those of the system."""

    def __init__(self, memory: mmap.mmap, servers: tuple[str, ...] = (), ca: str | None = None) -> None:
        self.servers = servers
        self.ca = ca
        self._memory = memory
        self._places: dict[Key, int] = {}
        self._free: list[int] = []
        self._used = 0

    def begin_incarnation(self, worker_id: UUID) -> str:
        """Forget the runs of the incarnation before. Returns the secret of the new one."""
        memory = self._memory
        memory[0] = memory[1] = memory[2] = 0
        memory[_ENTRIES : _ENTRIES + self._used * _ENTRY.size] = bytes(self._used * _ENTRY.size)
        self._places.clear()
        self._free.clear()
        self._used = 0
        self._set_number(_USED, 0)
        secret = new_secret()
        named = {"servers": self.servers, "worker_id": str(worker_id), "secret": secret}
        notice = json.dumps(named if self.ca is None else {**named, "ca": self.ca}).encode()
        if len(notice) <= _ENTRIES - _NOTICE:
            memory[_NOTICE : _NOTICE + len(notice)] = notice
            self._set_number(_NOTICE_LENGTH, len(notice))
            memory[0] = memory[1] = 1
        return secret

    def record_start(self, key: Key, held: Container[Key]) -> None:
        """Record that this exclusive run is about to start. `held` are the runs that are not settled; if there is no
        room left, the others are dropped."""
        if key in self._places:
            return
        if not self._free and self._used == CAPACITY:
            self.keep_only(held)
        if self._free:
            place = self._free.pop()
        elif self._used < CAPACITY:
            place, self._used = self._used, self._used + 1
        else:
            self._memory[1] = 0  # from now on the list is not complete
            return
        self._places[key] = place
        run_id, fence = key
        _ENTRY.pack_into(self._memory, _ENTRIES + place * _ENTRY.size, run_id.to_bytes(16), fence)
        self._set_number(_USED, self._used)

    def keep_only(self, held: Container[Key]) -> None:
        """Drop the runs whose outcome was acknowledged or that were handed back."""
        for key in [key for key in self._places if key not in held]:
            place = self._places.pop(key)
            start = _ENTRIES + place * _ENTRY.size
            self._memory[start : start + _ENTRY.size] = _EMPTY
            self._free.append(place)

    def record_longest_silence(self, seconds: float) -> None:
        """The lease that the server has granted, for the runs that it keeps longest."""
        _SECONDS.pack_into(self._memory, _SILENCE, seconds)

    def record_stopped(self) -> None:
        """A server knows that this incarnation has stopped. The notice is only a repetition."""
        self._memory[2] = 1

    def record_asked(self) -> None:
        """The worker has been asked to stop. If it ends before it is done, its runs are not the reason."""
        self._memory[3] = 1

    def withdraw(self) -> None:
        """Withdraw the record: this incarnation ends without having called a server, so there is no notice to send."""
        self._memory[0] = 0

    def _set_number(self, offset: int, number: int) -> None:
        _NUMBER.pack_into(self._memory, offset, number)


def has_stopped(memory: mmap.mmap) -> bool:
    """Whether a server knows already that the incarnation has stopped."""
    return bool(memory[2])


def was_asked_to_stop(memory: mmap.mmap) -> bool:
    return bool(memory[3])


def longest_silence(memory: mmap.mmap) -> float:
    """What `record_longest_silence` told last; 0 if nothing."""
    return float(_SECONDS.unpack_from(memory, _SILENCE)[0])


def read_record(memory: mmap.mmap) -> dict[str, Any] | None:
    """The notice with `started`, unless that is not known. None if there is no notice. The worker must be dead."""
    if not memory[0]:
        return None
    (length,) = _NUMBER.unpack_from(memory, _NOTICE_LENGTH)
    notice: dict[str, Any] = json.loads(memory[_NOTICE : _NOTICE + length])
    if memory[1]:
        (used,) = _NUMBER.unpack_from(memory, _USED)
        entries = _ENTRY.iter_unpack(memory[_ENTRIES : _ENTRIES + used * _ENTRY.size])
        notice["started"] = [[str(UUID(bytes=run_id)), fence] for run_id, fence in entries if any(run_id)]
    return notice
