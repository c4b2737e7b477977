"""`"sandbox": "bubblewrap"`: a command that sees a read-only system, its working folder, itself, and no network."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

WRAPPER = "bwrap"
# Where people and services keep what is not everybody's: homes, sockets, mounted secrets. Inside they are empty.
_HIDDEN = ("/home", "/root", "/run", "/tmp", "/var/tmp", "/mnt", "/media")
# What the loader and the C library of any program heed, bwrap itself among them, which stands outside.
_HEEDED = ("LD_", "GLIBC_", "GCONV_", "MALLOC_", "LOCPATH", "NLSPATH", "RESOLV_", "TZDIR")


class NoSandbox(Exception):
    """bubblewrap is not installed here."""


def installed(environ: Mapping[str, str]) -> bool:
    return shutil.which(WRAPPER, path=environ.get("PATH")) is not None


def inside_only(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of a job's variables that must not reach bwrap: LD_PRELOAD, naming a library in another run's folder, would
    be code of the job's outside of the sandbox."""
    return {name: value for name, value in variables.items() if name.upper().startswith(_HEEDED)}


def in_bubblewrap(
    argv: list[str],
    folder: Path,
    environ: Mapping[str, str],
    hidden: tuple[Path, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> list[str]:
    """`argv` as it is run inside; `environ` is the worker's, which says where bwrap is and what its home is, and
    `variables` are set inside only.

    A worker that is root has no more rights in there than another: with root's capabilities a command could mount the
    system writable again and uncover what is hidden, and in a writable /proc it could set the kernel's core_pattern.
    /dev/shm, which semaphores need, is the folder too: a tmpfs would be memory that no limit counts.
    """
    program = shutil.which(WRAPPER, path=environ.get("PATH"))
    if program is None:
        raise NoSandbox
    empty = [Path(path) for path in (*_HIDDEN, environ.get("HOME", "/root"))] + [*hidden, folder.parent]
    covers: list[str] = []
    closed = ["--remount-ro", "/proc", "--remount-ro", "/dev"]
    for path in sorted({path.resolve() for path in empty if path.is_dir()}):  # parents first, or they would cover again
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
