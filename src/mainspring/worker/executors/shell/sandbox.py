"""`"sandbox": "bubblewrap"`: the command sees a read-only system, its own folder and processes, and no network."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

WRAPPER = "bwrap"
# Folders with private data: homes, sockets, mounted secrets. Inside the sandbox they are empty.
_HIDDEN = ("/home", "/root", "/run", "/tmp", "/var/tmp", "/mnt", "/media")
# Variables that the loader and the C library of every program read, also of bwrap itself, which runs outside.
_READ_BY_LOADER = ("LD_", "GLIBC_", "GCONV_", "MALLOC_", "LOCPATH", "NLSPATH", "RESOLV_", "TZDIR")


class NoSandbox(Exception):
    """bubblewrap is not installed on this machine."""


def installed(environ: Mapping[str, str]) -> bool:
    return shutil.which(WRAPPER, path=environ.get("PATH")) is not None


def inside_only(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a job that must not reach bwrap itself: LD_PRELOAD with a library in another run's folder would
    run code of the job outside the sandbox."""
    return {name: value for name, value in variables.items() if name.upper().startswith(_READ_BY_LOADER)}


def in_bubblewrap(
    argv: list[str],
    folder: Path,
    environ: Mapping[str, str],
    hidden: tuple[Path, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that runs `argv` in the sandbox. `environ` is that of the worker, with its PATH and HOME;
    `variables` are set inside only.

    Commands of a worker that runs as root have no capabilities inside: with them a command could remount the system
    writable and uncover what is hidden, and in a writable /proc it could set the kernel's core_pattern. /dev/shm, which
    semaphores need, is the working folder: a tmpfs would be memory that no limit counts.
    """
    program = shutil.which(WRAPPER, path=environ.get("PATH"))
    if program is None:
        raise NoSandbox
    empty = [Path(path) for path in (*_HIDDEN, environ.get("HOME", "/root"))] + [*hidden, folder.parent]
    covers: list[str] = []
    closed = ["--remount-ro", "/proc", "--remount-ro", "/dev"]
    for path in sorted({path.resolve() for path in empty if path.is_dir()}):  # parents first, or they would hide them
        if path != Path("/"):
            covers += ["--tmpfs", str(path)]
            closed += ["--remount-ro", str(path)]
    return [
        program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox",
        "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *covers,
        "--bind", str(folder), str(folder), "--bind", str(folder), "/dev/shm", *closed,
        *(word for name, value in (variables or {}).items() for word in ("--setenv", name, value)),
        "--chdir", str(folder), "--", *argv,
    ]  # fmt: skip
