"""Attacks from inside the sandbox. A test runs this file with a JSON object as its argument, and reads the JSON that it
prints: what each attack got. It uses the standard library alone.

secrets: paths that must not be there. sockets: addresses of Unix sockets (an abstract one begins with @) and ports of
this machine that must not answer. words: what no environment that can be read may contain.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import platform
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Numbers on x86_64 and aarch64, and arguments that an unfiltered kernel answers with something else than EPERM.
CALLS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "unshare": ((272, 97), (0x10000000,)),
    "clone": ((56, 220), (0x10000000 | 17, 0, 0, 0, 0)),
    "clone3": ((435, 435), (0, 0)),
    "ptrace": ((101, 117), (0, 0, 0, 0)),
    "keyctl": ((250, 219), (0, -3, 0)),
    "add_key": ((248, 217), (0, 0, 0, 0, 0)),
    "io_uring_setup": ((425, 425), (1, 0)),
    "userfaultfd": ((323, 282), (1,)),
    "process_vm_readv": ((310, 270), (1, 0, 0, 0, 0, 0)),
    "fsopen": ((430, 430), (0, 0)),
    "open_by_handle_at": ((304, 265), (-1, 0, 0)),
    "personality": ((135, 92), (0x0040000,)),
    "not_known_yet": ((500, 500), ()),
}
_libc = ctypes.CDLL(None, use_errno=True)


def outcome(attack: Callable[[], Any]) -> str:
    """`got it`, or the name of the error."""
    try:
        attack()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "got it"


def call(numbers: tuple[int, int], *arguments: int) -> str:
    ctypes.set_errno(0)
    number = numbers[0 if platform.machine() == "x86_64" else 1]
    if _libc.syscall(number, *map(ctypes.c_long, arguments)) >= 0:
        return "got it"
    return errno.errorcode[ctypes.get_errno()]


def mount() -> None:
    if _libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")


def reached(address: str | int) -> bool:
    family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_STREAM) as dialling:
        dialling.settimeout(2)
        try:
            target = ("127.0.0.1", address) if isinstance(address, int) else address.replace("@", "\0")
            dialling.connect(target)
        except OSError:
            return False
        return True


def environments() -> str:
    """All environments that can be read."""
    found = ""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += path.read_text(errors="replace")
        except OSError:
            continue
    return found


def mounts() -> list[list[str]]:
    """Mount point, options, kind of file system."""
    lines = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [[before.split()[4], before.split()[5], after.split()[0]] for before, after in lines]


def writable() -> list[str]:
    """Where a file can be created or opened for writing, of all mounts and of the usual folders."""
    places = {place for place, _, _ in mounts()} | {"/", "/etc", "/var", "/usr/local", "/bin", "/root", "/home", "/run"}
    places |= {"/etc/passwd", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/self/uid_map"}
    found = []
    for place in sorted(places):
        target = f"{place}/attack" if Path(place).is_dir() else place
        flags = os.O_WRONLY | (os.O_CREAT if Path(place).is_dir() else 0)
        if outcome(lambda target=target, flags=flags: os.close(os.open(target, flags))) == "got it":  # type: ignore[misc]
            found.append(place)
    return found


def terminal() -> str:
    """Put characters into a terminal, as if its user had typed them."""
    _, terminal = os.openpty()
    return outcome(lambda: fcntl.ioctl(terminal, 0x5412, b"x"))


def main(aims: dict[str, Any]) -> dict[str, Any]:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    shared = Path("/dev/shm/attack-memory")
    shared.write_bytes(b"x" * (1 << 20))
    return {
        "ids": sorted({*os.getresuid(), *os.getresgid()}),
        "status": {name: status[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp")},
        "read": [path for path in aims["secrets"] if outcome(lambda path=path: os.stat(path)) == "got it"],  # type: ignore[misc]
        "reached": [address for address in aims["sockets"] if reached(address)],
        "words": [word for word in aims["words"] if word in environments()],
        "processes": len(list(Path("/proc").glob("[0-9]*"))),
        "descriptors": sorted(os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()),
        "calls": {name: call(numbers, *arguments) for name, (numbers, arguments) in CALLS.items()},
        "mount": outcome(mount),
        "vsock": outcome(lambda: socket.socket(40, socket.SOCK_STREAM).close()),
        "terminal": terminal(),
        "writable": writable(),
        "writable memory": [
            place for place, options, kind in mounts() if kind == "tmpfs" and "rw" in options.split(",")
        ],
        "shared memory is the folder": (Path.cwd() / shared.name).exists(),
        "host name": socket.gethostname(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
