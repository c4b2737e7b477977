"""The secret of an incarnation: in no argument, no environment, and no memory that a command can read."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import struct
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from .a_launched_worker import Launched, below, children_of, with_a_launched_worker
from .exchange_server import ExchangeServer, an_order
from .processes import written
from .test_watchdog import SOON

NOBODY = 65534
_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _CAP_DAC_READ_SEARCH = 8, 47, 2
# What a command can try: open the memory of every process above it, and attach to it.
LOOK = """
import ctypes, json, os, sys
found, pid = {}, os.getpid()
while pid > 1:
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    if pid == int(sys.argv[1]):
        break
    opened = []
    for name in ("mem", "environ", "maps"):
        try:
            open(f"/proc/{pid}/{name}", "rb").read(0 if name == "mem" else 1)
            opened.append(name)
        except OSError:
            pass
    libc = ctypes.CDLL(None)
    if libc.ptrace(16, pid, 0, 0) == 0:
        opened.append("ptrace")
    found[pid] = opened
json.dump(found, open(sys.argv[2] + ".new", "w"))
os.rename(sys.argv[2] + ".new", sys.argv[2])
"""


def memory_of(pid: int) -> bytes:
    """All that can be read of its memory by root, or by ourselves. Nothing, if it has ended."""
    pieces: list[bytes] = []
    with suppress(FileNotFoundError, ProcessLookupError), ExitStack() as files:
        maps = files.enter_context(Path(f"/proc/{pid}/maps").open())
        memory = files.enter_context(Path(f"/proc/{pid}/mem").open("rb", 0))
        for line in maps:
            span, permissions, *_ = line.split()
            if permissions.startswith("r") and "[v" not in line:
                start, end = (int(edge, 16) for edge in span.split("-"))
                try:
                    memory.seek(start)
                    pieces.append(memory.read(end - start))
                except (OSError, ValueError, OverflowError):
                    continue
    return b"".join(pieces)


def become_nobody() -> None:
    """Another user than root, who may only enter the folder of the interpreter, wherever that is."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setuid(NOBODY)
    header = struct.pack("<Ii", 0x20080522, 0)
    wanted = 1 << _CAP_DAC_READ_SEARCH
    assert libc.capset(header, struct.pack("<6I", wanted, wanted, wanted, 0, 0, 0)) == 0
    assert libc.prctl(_PR_CAP_AMBIENT, 2, _CAP_DAC_READ_SEARCH, 0, 0) == 0


def secret_of(server: ExchangeServer) -> bytes:
    return next(filter(None, server.secrets.values())).encode()


def test_it_is_in_no_argument_and_no_environment(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.submit(an_order("shell", command=f"echo x > {tmp_path}/began; sleep 60"))
        await written(tmp_path / "began")
        family = [launched.pid, *below(launched.pid)]
        assert len(family) >= 6, "launcher, parent watchdog, worker, watchdog, supervisor, command"
        secret = secret_of(server)
        for pid in family:
            for name in ("cmdline", "environ"):
                assert secret not in Path(f"/proc/{pid}/{name}").read_bytes()

    with_a_launched_worker(tmp_path, test)


def test_only_the_worker_and_its_parent_watchdog_have_it_in_memory(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can read the memory of the worker; the next test shows that others cannot")

    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.submit(an_order("shell", command=f"echo x > {tmp_path}/began; sleep 60"))
        await written(tmp_path / "began")
        secret = secret_of(server)
        having = {pid for pid in [launched.pid, *below(launched.pid)] if secret in memory_of(pid)}
        assert having == {launched.worker, launched.parent_watchdog}

    with_a_launched_worker(tmp_path, test)


def test_a_command_cannot_read_the_memory_of_those_who_have_it(tmp_path: Path) -> None:
    """Root can read everything, so as root the test starts the worker as another user."""
    options: dict[str, Any] = {}
    if os.getuid() == 0:
        options["preexec_fn"] = become_nobody
        tmp_path.chmod(0o777)

    async def test(server: ExchangeServer, launched: Launched) -> None:
        assert Path(f"/proc/{launched.worker}/status").read_text().partition("Uid:")[2].split()[0] != "0"
        look = shlex.join([sys.executable, "-I", "-S", "-c", LOOK, str(os.getpid()), f"{tmp_path}/found"])
        server.submit(an_order("shell", command=f"{look}; sleep 60"))
        await written(tmp_path / "found", seconds=SOON)
        found = {int(pid): opened for pid, opened in json.loads((tmp_path / "found").read_text()).items()}
        assert {launched.worker, launched.parent_watchdog} <= found.keys(), "it looked at both"
        assert found.pop(launched.worker) == found.pop(launched.parent_watchdog) == []
        del found[launched.pid]
        (watchdog,) = children_of(launched.worker)
        (supervisor,) = children_of(watchdog)
        assert found.pop(supervisor) == [], "it has the environments of its earlier commands"
        assert found.pop(watchdog) == [], "it starts the commands of the worker"
        assert all("mem" in opened for opened in found.values()), "of those who do not have it, it can"

    with_a_launched_worker(tmp_path, test, **options)
