"""The command line of bubblewrap, and whether the sandbox can be built on this machine.

bwrap is run by an ordinary user. User namespaces give it the rights to build the sandbox, and the command has none of
them. It reads its options, the filter and the written files from descriptors (`SpawnOrder.inputs`), so that they are
not in `ps` and not in files that others could change.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mainspring.kinds.shell.sandbox.probe import run_once
from mainspring.kinds.shell.sandbox.read_paths import FOLDER
from mainspring.kinds.shell.sandbox.seccomp import NoFilter, seccomp_filter
from mainspring.kinds.shell.sandbox.shown_paths import SYSTEM, USER, USER_ID, WRITTEN, mount_options
from mainspring.worker.execution.work_folders import WorkFolders, remove_tree
from mainspring.worker.processes.accounts import Account
from mainspring.worker.processes.command import SpawnOrder
from mainspring.worker.processes.watchdog.child import FIRST_INPUT

WRAPPER = "bwrap"
_OPTIONS, _FILTER, _FIRST_FILE = range(FIRST_INPUT, FIRST_INPUT + 3)  # descriptors
# The first process inside is bwrap. When it ends, the kernel kills everything else inside. It ends with the command and
# with the bwrap outside, which ends with the supervisor. With `--as-pid-1` the command would be the first process, and
# a first process ignores every signal that it does not handle.
_NAMESPACES = [
    "--unshare-user", "--uid", str(USER_ID), "--gid", str(USER_ID), "--unshare-pid", "--unshare-net", "--unshare-ipc",
    "--unshare-uts", "--hostname", "sandbox", "--unshare-cgroup-try",
    "--die-with-parent", "--new-session", "--cap-drop", "ALL",
]  # fmt: skip
_PATH = "/usr/local/bin:/usr/bin:/bin"
_FIX = (
    "allow user namespaces to the worker's account: sysctl user.max_user_namespaces and, on Debian, "
    "kernel.unprivileged_userns_clone=1; on Ubuntu an AppArmor profile for bwrap; in a container, a seccomp profile "
    "that permits them and an unmasked /proc"
)


class NoSandbox(Exception):
    """The sandbox cannot be built on this machine. `hint` says what to do."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.hint = hint


@dataclass(frozen=True)
class Bubblewrap:
    """`read` are files and folders that commands may read in addition to the system."""

    program: str
    read: Sequence[Path] = ()
    _filter: bytes = field(init=False, repr=False)
    _mounts: list[str] = field(init=False, repr=False)
    _read_mounts: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_filter", seccomp_filter(os.uname().machine))
        object.__setattr__(self, "_mounts", mount_options())
        read = [word for path in self.read for word in ("--ro-bind", str(path.resolve()), str(path))]
        object.__setattr__(self, "_read_mounts", read)

    def confine(
        self, argv: list[str], folder: Path, environ: Mapping[str, str], inside: Mapping[str, str]
    ) -> SpawnOrder:
        """The command in the sandbox, with `folder` as its working folder.

        `environ` is the part of the worker's environment that commands get. `inside` are the variables of the run.
        bwrap itself gets no variables: LD_PRELOAD of the job would load a library there. ValueError for a NUL: it
        ends an option of bwrap, and the rest would be an option of its own.
        """
        own = {"HOME": str(FOLDER), "TMPDIR": str(FOLDER), "USER": USER, "LOGNAME": USER}
        variables = {**environ, "PATH": self._path(environ.get("PATH", "")), **own, **inside}
        files = [word for number, path in enumerate(WRITTEN, _FIRST_FILE) for word in ("--file", str(number), path)]
        settings = [word for name, value in variables.items() for word in ("--setenv", name, value)]
        options = [*_NAMESPACES, "--seccomp", str(_FILTER), *files, *self._file_system(folder), *settings]
        if any("\0" in word for word in (*options, *argv)):
            raise ValueError("the command or its environment contains the character NUL")
        words = b"".join(os.fsencode(option) + b"\0" for option in options)
        return SpawnOrder(
            [self.program, "--args", str(_OPTIONS), "--", *argv],
            {},
            str(folder),
            wrapper=WRAPPER,
            own_root=True,
            inputs=[words, self._filter, *WRITTEN.values()],
        )

    def _path(self, outside: str) -> str:
        """The folders of a PATH that exist inside. The others would only say where the worker keeps its programs."""
        shown = [*SYSTEM, *map(str, self.read)]
        kept = [name for name in outside.split(":") if any(_is_below(name, folder) for folder in shown)]
        return ":".join(kept) or _PATH

    def _file_system(self, folder: Path) -> list[str]:
        """The file system inside. Everything is read-only but the working folder, which is also /tmp and /dev/shm: a
        tmpfs would be memory that no limit counts. The mount points of `read` may be below /tmp, so they come later."""
        return [
            *self._mounts, "--proc", "/proc", "--dev", "/dev",
            "--bind", str(folder), str(FOLDER), "--bind", str(folder), "/tmp", "--bind", str(folder), "/dev/shm",
            "--symlink", "../tmp", "/var/tmp",
            *self._read_mounts,
            # Names of keys; no namespace separates them.
            *(["--ro-bind", os.devnull, "/proc/keys"] if Path("/proc/keys").exists() else []),
            # The first process is bwrap: its arguments and its memory name folders of the machine.
            "--tmpfs", "/proc/1", "--remount-ro", "/proc/1",
            "--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(FOLDER),
        ]  # fmt: skip


def _is_below(path: str, folder: str) -> bool:
    return ".." not in path.split("/") and (path == folder or path.startswith(f"{folder}/"))


def find_bubblewrap(environ: Mapping[str, str], read: Sequence[Path] = ()) -> Bubblewrap:
    """bubblewrap as this machine has it. Raises NoSandbox."""
    program = shutil.which(WRAPPER, path=environ.get("PATH"))
    if program is None:
        raise NoSandbox("bubblewrap (bwrap) is not installed", "install it: apt install bubblewrap")
    try:
        return Bubblewrap(program, tuple(read))
    except NoFilter as error:
        raise NoSandbox(str(error), "run sandboxed commands on a worker with x86_64 or aarch64") from None


def tried_bubblewrap(
    environ: Mapping[str, str], read: Sequence[Path], folders: WorkFolders, account: Account | None = None
) -> Bubblewrap:
    """As `find_bubblewrap`, but first run a command with the options of every other, as the account of commands. Raises
    NoSandbox with the reason that bwrap gives. Call it while there are no threads: it forks, and starts the command as
    a supervisor does."""
    found = find_bubblewrap(environ, read)
    try:
        folder = folders.make(account)
    except OSError as error:
        raise NoSandbox(f"no working folder could be made: {error}", "make room in the temporary folder") from None
    try:
        path = {"PATH": environ.get("PATH", os.defpath)}
        order = found.confine(["/bin/sh", "-c", ":"], folder, path, {})
        status, said = run_once(msgspec.structs.replace(order, account=account))
    finally:
        remove_tree(folder)
    if status != 0:
        raise NoSandbox(said or f"bwrap ended with exit code {status}", _FIX)
    return found
