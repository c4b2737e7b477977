"""What a command's process does between its birth and the command: a session, descriptors, signals, limits, exec."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any, NoReturn

from . import cgroup
from . import resource_limits as limits
from .tree import signal_at_parents_death

_CHANNEL = 3
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
# What is ignored stays so through exec: by Python (SIGPIPE), by the watchdog, or by whoever started the worker (a shell
# starts what runs in its background without SIGINT and SIGQUIT).
_RESETTABLE = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def become(order: dict[str, Any], output: int, channel: int | None, group: str | None) -> NoReturn:
    """Never returns. What goes wrong is told on the output, with the exit codes of a shell."""
    program = order["argv"][0]
    try:
        os.setsid()
        # Should the supervisor be killed the watchdog takes over; this is for the case that it is killed, too.
        signal_at_parents_death(signal.SIGKILL)
        # All that a supervisor holds is closed by exec, but for what is put in these places.
        os.dup2(output, 1)
        os.dup2(output, 2)
        if channel is not None:
            os.dup2(channel, _CHANNEL)
            os.set_inheritable(_CHANNEL, True)  # dup2 does not when it is in its place already
        for number in _RESETTABLE:
            if signal.getsignal(number) != signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if group is not None:
            cgroup.enter(group)
        os.chdir(order["cwd"])
        limits.set_rlimits(order["limits"])
        os.execvpe(program, order["argv"], order["env"])
    except Exception as error:  # noqa: BLE001 - anything at all: this process must not live on as a copy of its parent
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        os.write(2, f"mainspring: {program}: {reason}\n".encode(errors="replace"))
        absent = isinstance(error, OSError) and error.errno == errno.ENOENT
        os._exit(_NOT_FOUND if absent else _NOT_EXECUTABLE)
