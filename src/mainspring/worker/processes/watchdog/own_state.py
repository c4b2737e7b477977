"""What a command can change about its supervisor, if both run as the same user, also from inside a pid namespace: its
resource limits, cores, priorities and scheduling. The next command would inherit them, and hard limits cannot be raised
again, so such a supervisor gets no other command."""

from __future__ import annotations

import ctypes
import os
import resource

from .tree import LINUX

_LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
_GET_IO_PRIORITY = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)
_ITSELF = 1

_libc = ctypes.CDLL(None) if LINUX else None


def own_state() -> tuple[object, ...]:
    state: list[object] = [resource.getrlimit(which) for which in _LIMITS]
    if LINUX:
        state += [os.sched_getaffinity(0), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)]
    if _libc is not None and _GET_IO_PRIORITY is not None:
        state.append(_libc.syscall(_GET_IO_PRIORITY, _ITSELF, 0))
    return tuple(state)
