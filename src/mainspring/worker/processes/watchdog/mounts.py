"""Lists of mounts, as /proc/PID/mountinfo shows them."""

from __future__ import annotations

import os
from typing import NamedTuple

from .tree import read_file

# A mount point is written with these characters escaped. The backslash is the last one to undo.
_ESCAPED = ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\043", b"#"), (b"\\134", b"\\"))


class Mount(NamedTuple):
    device: int
    root: str  # of the file system: what of it is mounted
    point: str
    kind: str
    options: list[bytes]  # of the file system


def mounts_of(pid: int | str) -> list[Mount]:
    """What a process sees, in the order in which it was mounted. Nothing if the process has ended."""
    try:
        lines = read_file(f"/proc/{pid}/mountinfo").splitlines()
    except OSError:
        return []
    return [_parsed(line) for line in lines]


def _parsed(line: bytes) -> Mount:
    before, _, after = line.partition(b" - ")
    fields, more = before.split(b" "), after.split(b" ")
    major, minor = (int(part) for part in fields[2].split(b":"))
    root, point = _unescaped(fields[3]), _unescaped(fields[4])
    return Mount(os.makedev(major, minor), root, point, os.fsdecode(more[0]), more[-1].split(b","))


def _unescaped(path: bytes) -> str:
    for escaped, character in _ESCAPED:
        path = path.replace(escaped, character)
    return os.fsdecode(path)
