"""What a new process does before it executes the command: session, descriptors, signals, limits, exec."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any, NoReturn

from . import cgroup
from . import resource_limits as limits
from .tree import signal_at_parents_death

_CHANNEL = 3
FIRST_INPUT = 4  # the descriptor of the first of the order's inputs
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
# Ignored signals stay ignored after exec: those that Python ignores (SIGPIPE), the watchdog, or the program that
# started the worker (a shell starts background jobs with SIGINT and SIGQUIT ignored).
_RESETTABLE = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def become(order: dict[str, Any], output: int, channel: int | None, group: str | None) -> NoReturn:
    """Never returns. Errors are written to the output, and the exit codes are those of a shell."""
    program = order["argv"][0]
    try:
        os.setsid()
        # If the supervisor is killed, the watchdog takes over. This is for the case that the watchdog is killed too.
        signal_at_parents_death(signal.SIGKILL)
        # exec closes all descriptors of the supervisor except these.
        os.dup2(output, 1)
        os.dup2(output, 2)
        if channel is not None:
            os.dup2(channel, _CHANNEL)
            os.set_inheritable(_CHANNEL, True)  # dup2 does not do it if source and target are the same
        for number in _RESETTABLE:
            if signal.getsignal(number) != signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        open_inputs(order["inputs"])
        if group is not None:
            cgroup.enter(group)
        os.chdir(order["cwd"])
        limits.set_rlimits(order["limits"])
        os.execvpe(program, order["argv"], order["env"])
    except Exception as error:  # noqa: BLE001 - this process must not go on as a copy of its parent
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        os.write(2, f"mainspring: {program}: {reason}\n".encode(errors="replace"))
        absent = isinstance(error, OSError) and error.errno == errno.ENOENT
        os._exit(_NOT_FOUND if absent else _NOT_EXECUTABLE)


def open_inputs(contents: list[bytes]) -> None:
    """Let the program read these contents from the descriptors FIRST_INPUT, FIRST_INPUT + 1, and so on. They replace
    descriptors of this process, which executes a program next."""
    for number, data in enumerate(contents, FIRST_INPUT):
        descriptor = os.memfd_create("input", 0)
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        if descriptor != number:
            os.dup2(descriptor, number)
            os.close(descriptor)
