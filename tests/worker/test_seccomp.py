"""The filter of system calls, run by a small interpreter of BPF: for both architectures, on any machine."""

from __future__ import annotations

import errno
import os
import re
import struct
from pathlib import Path

import pytest

from mainspring.kinds.shell.sandbox.seccomp import (
    ALLOW,
    AUDIT_ARCHITECTURES,
    KILL,
    NoFilter,
    refuse,
    seccomp_filter,
)
from mainspring.kinds.shell.sandbox.syscalls import ABSENT, CLONE, FORBIDDEN, IOCTL, PERSONALITY, SOCKET

COLUMNS = {"x86_64": 0, "aarch64": 1}
EPERM, ENOSYS = refuse(errno.EPERM), refuse(errno.ENOSYS)
both = pytest.mark.parametrize("architecture", COLUMNS)


def decide(architecture: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel does with this call."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    audit = AUDIT_ARCHITECTURES[architecture] if audit is None else audit
    data = struct.pack("=IIQ6Q", number, audit, 0, *(value & (2**64 - 1) for value in padded))
    code = seccomp_filter(architecture)
    program = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    at, loaded = 0, 0
    while True:
        instruction, if_true, if_false, k = program[at]
        at += 1
        match instruction:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", data, k)
            case 0x06:
                return k
            case 0x15:
                at += if_true if loaded == k else if_false
            case 0x25:
                at += if_true if loaded > k else if_false
            case 0x35:
                at += if_true if loaded >= k else if_false
            case 0x45:
                at += if_true if loaded & k else if_false
            case _:
                raise AssertionError(instruction)


@both
def test_denied_calls_fail_and_all_others_are_allowed(architecture: str) -> None:
    column = COLUMNS[architecture]
    denied = {call[column]: EPERM for call in FORBIDDEN.values()} | {call[column]: ENOSYS for call in ABSENT.values()}
    judged_by_arguments = {call[column] for call in (CLONE, IOCTL, PERSONALITY, SOCKET)}
    for number in range(467):
        if number not in judged_by_arguments:
            assert decide(architecture, number) == denied.get(number, ALLOW), number
    assert decide(architecture, 467) == decide(architecture, 0x3FFFFFFF) == ENOSYS


@both
def test_calls_of_another_architecture_end_the_process(architecture: str) -> None:
    i386, arm = 0x40000003, 0x40000028
    for other in (i386, arm, *(code for name, code in AUDIT_ARCHITECTURES.items() if name != architecture)):
        assert decide(architecture, 1, audit=other) == KILL
    x32 = decide(architecture, 0x40000000 | 1)
    assert x32 == (KILL if architecture == "x86_64" else ENOSYS)


@both
def test_arguments_are_judged_by_what_the_kernel_reads_of_them(architecture: str) -> None:
    clone, ioctl, personality, family = (call[COLUMNS[architecture]] for call in (CLONE, IOCTL, PERSONALITY, SOCKET))
    threads = 0x003D0F00  # what pthread_create passes
    assert decide(architecture, clone, threads) == decide(architecture, clone, 17) == ALLOW
    for namespace in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(architecture, clone, namespace | 17) == EPERM
    above = 1 << 32  # the kernel takes the lower half
    for typed in (0x5412, 0x541C, 0x5412 | above):
        assert decide(architecture, ioctl, 0, typed) == EPERM
    assert decide(architecture, ioctl, 0, 0x5401) == ALLOW
    assert decide(architecture, personality, 0xFFFFFFFF) == decide(architecture, personality, 0) == ALLOW
    assert decide(architecture, personality, 0x0040000) == EPERM
    for allowed in (1, 2, 10, 16):
        assert decide(architecture, family, allowed) == ALLOW
    for vsock in (40, 40 | above):
        assert decide(architecture, family, vsock) == refuse(errno.EAFNOSUPPORT)


def test_other_architectures_have_none() -> None:
    with pytest.raises(NoFilter, match="riscv64"):
        seccomp_filter("riscv64")


@pytest.mark.parametrize(
    ("architecture", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_the_numbers_are_those_of_the_kernel(architecture: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"the kernel's headers are not installed: {header}")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())
    numbers = {name: int(number) for name, number in found}
    named = FORBIDDEN | ABSENT | {"clone": CLONE, "ioctl": IOCTL, "personality": PERSONALITY, "socket": SOCKET}
    ours = {name: call[COLUMNS[architecture]] for name, call in named.items()}
    known = {name: number for name, number in ours.items() if name in numbers}
    assert known == {name: numbers[name] for name in known}
    assert len(known) > len([number for number in ours.values() if number is not None]) - 5, "headers may be older"


def test_this_machine_has_one_if_it_is_usual() -> None:
    if os.uname().machine in COLUMNS:
        assert len(seccomp_filter(os.uname().machine)) % 8 == 0
