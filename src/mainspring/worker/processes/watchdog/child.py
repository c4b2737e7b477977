"""What a new process does before it executes the command: session, descriptors, signals, limits, account, exec."""

from __future__ import annotations

import errno
import os
import signal
import stat
from typing import Any, NoReturn

from . import cgroup
from . import resource_limits as limits
from .tree import forbid_new_privileges, leave_session_keyring, signal_at_parents_death

_CHANNEL = 3
FIRST_INPUT = 4  # the descriptor of the first of the order's inputs
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_OOM_SCORE = "500"  # as if it used half of the memory more
# Ignored signals stay ignored after exec: those that Python ignores (SIGPIPE), the watchdog, or the program that
# started the worker (a shell starts background jobs with SIGINT and SIGQUIT ignored).
_RESETTABLE = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def become(
    order: dict[str, Any],
    output: int,
    errors: int,
    channel: int | None,
    control: int | None,
    group: cgroup.Group | None,
    supervisor: int,
) -> NoReturn:
    """Never returns. What goes wrong is written to `errors`, and the exit codes are those of a shell."""
    about = program = order["argv"][0]
    try:
        os.setsid()
        if control is not None:
            _say_started(control)  # before the channel and the inputs, which may replace this descriptor
        # exec closes all descriptors of the supervisor except these.
        os.dup2(output, 1)
        os.dup2(errors, 2)
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
        limits.set_rlimits(order["limits"], own_users=has_own_users(order))
        _be_killed_first()
        leave_session_keyring()  # before the account changes: an account has a small quota of keys
        if order["account"] is not None:
            _change_account(order["account"])
        # If the supervisor is killed, the watchdog takes over. This is for the case that the watchdog is killed too. It
        # is the last step before the command's own: a change of the account would undo it.
        signal_at_parents_death(signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(_NOT_EXECUTABLE)
        about = order["cwd"]
        os.chdir(about)
        about = program
        os.execvpe(program, order["argv"], order["env"])
    except Exception as error:  # noqa: BLE001 - this process must not go on as a copy of its parent
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        os.write(2, f"mainspring: {about}: {reason}\n".encode(errors="replace"))
        absent = isinstance(error, OSError) and error.errno == errno.ENOENT
        os._exit(_NOT_FOUND if absent else _NOT_EXECUTABLE)


def has_own_users(order: dict[str, Any]) -> bool:
    """The command is in a user namespace of its own, where the kernel counts the processes of its user anew. It does
    since Linux 5.14."""
    major, minor, *_ = os.uname().release.split(".")
    version = (int(major), int("".join(character for character in minor if character.isdigit()) or 0))
    return bool(order.get("isolated")) and os.getuid() != 0 and version >= (5, 14)


def _be_killed_first() -> None:
    """If memory runs out, the kernel kills commands before the worker and its watchdogs."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
            file.write(_OOM_SCORE)
    except OSError:
        return


def _say_started(control: int) -> None:
    """Tell the worker, in case the command stops or kills its supervisor before that can. The worker then knows that
    there is a command, and ends it."""
    try:
        os.write(control, b"started %d\n" % os.getpid())
    except OSError:  # the worker is gone, or does not read: the supervisor says it again
        return


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


def _change_account(account: dict[str, Any]) -> None:
    """Root becomes another user, for good. The kernel takes all capabilities with the user's number."""
    user, group = account["uid"], account["gid"]
    for stream in (1, 2):
        if stat.S_ISFIFO(os.fstat(stream).st_mode):
            os.fchown(stream, user, group)  # or the command could not open /dev/stdout and /dev/stderr
    os.setgroups(account["groups"])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if not account["gains"]:
        forbid_new_privileges()
