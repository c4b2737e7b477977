"""The seccomp filter: a program of classic BPF that the kernel runs for each system call of a sandboxed command.

It is assembled here, because libseccomp is a library in C with bindings that few systems have. `bwrap --seccomp` reads
the result. An instruction is (code, jump if true, jump if false, k); jumps count the instructions that are skipped.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Mapping

from mainspring.kinds.shell.sandbox.syscalls import (
    ABSENT,
    CLONE,
    FORBIDDEN,
    HIGHEST,
    IOCTL,
    PERSONALITY,
    SOCKET,
)

Instruction = tuple[int, int, int, int]
Program = list[Instruction]

# The number of each architecture in `struct seccomp_data`, and its column in the table of system calls.
AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMNS = {"x86_64": 0, "aarch64": 1}
_X32_BIT = 0x40000000

ALLOW = 0x7FFF0000
KILL = 0x80000000  # the whole process
_ERRNO = 0x00050000

_LOAD, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
# Offsets in `struct seccomp_data`. For an argument these are its lower 32 bits: the kernel ignores the others in the
# system calls below.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. clone takes no other.
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# PER_LINUX and PER_LINUX32, each with or without UNAME26, and the question which one it is.
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
# Others have let programs out: a vsock reaches the host of a virtual machine, and no network namespace contains it.
_FAMILIES = (socket.AF_UNSPEC, socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16)  # 16: AF_NETLINK


class NoFilter(Exception):
    """There is no filter for this architecture."""


def refuse(number: int) -> int:
    """The action that makes a call fail with this errno."""
    return _ERRNO | number


def seccomp_filter(architecture: str) -> bytes:
    """The filter for `architecture`, as os.uname().machine names it, in the form that the kernel takes."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in assemble(architecture))


def assemble(architecture: str) -> Program:
    if architecture not in _COLUMNS:
        raise NoFilter(f"there is no filter of system calls for {architecture}")
    column = _COLUMNS[architecture]
    program = [
        _load(_ARCHITECTURE),
        (_EQUAL, 1, 0, AUDIT_ARCHITECTURES[architecture]),
        _return(KILL),  # calls of another architecture have other numbers: 32-bit programs
        _load(_NUMBER),
    ]
    if architecture == "x86_64":
        program += _when(_AT_LEAST, _X32_BIT, [_return(KILL)])
    program += _when(_GREATER, HIGHEST, [_return(refuse(errno.ENOSYS))])
    program += _when(_EQUAL, CLONE[column], _deny_bits(0, _NEW_NAMESPACES))
    program += _when(_EQUAL, IOCTL[column], _deny_values(1, (_TIOCSTI, _TIOCLINUX)))
    program += _when(_EQUAL, PERSONALITY[column], _allow_values(0, _PERSONALITIES, errno.EPERM))
    program += _when(_EQUAL, SOCKET[column], _allow_values(0, _FAMILIES, errno.EAFNOSUPPORT))
    program += _deny(FORBIDDEN, column, errno.EPERM)
    program += _deny(ABSENT, column, errno.ENOSYS)
    program.append(_return(ALLOW))
    return program


def _deny(calls: Mapping[str, tuple[int | None, int | None]], column: int, error: int) -> Program:
    numbers = [call[column] for call in calls.values()]
    return [
        instruction
        for number in numbers
        if number is not None
        for instruction in _when(_EQUAL, number, [_return(refuse(error))])
    ]


def _when(test: int, value: int, block: Program) -> Program:
    """Run the block if the loaded value passes the test. A block ends with a return: it does not restore the number of
    the call."""
    return [(test, 0, len(block), value), *block]


def _deny_bits(argument: int, bits: int) -> Program:
    return [_load_argument(argument), *_when(_ANY_BIT, bits, [_return(refuse(errno.EPERM))]), _return(ALLOW)]


def _deny_values(argument: int, values: Iterable[int]) -> Program:
    denials = [step for value in values for step in _when(_EQUAL, value, [_return(refuse(errno.EPERM))])]
    return [_load_argument(argument), *denials, _return(ALLOW)]


def _allow_values(argument: int, values: Iterable[int], error: int) -> Program:
    permits = [step for value in values for step in _when(_EQUAL, value, [_return(ALLOW)])]
    return [_load_argument(argument), *permits, _return(refuse(error))]


def _load_argument(index: int) -> Instruction:
    return _load(_FIRST_ARGUMENT + 8 * index)


def _load(offset: int) -> Instruction:
    return (_LOAD, 0, 0, offset)


def _return(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)
