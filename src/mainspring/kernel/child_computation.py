"""Computes in a child process: an interpreter of its own, which ends with its work.

A thread would hold the interpreter of the event loop, for as long as a call into C takes, and the memory of many small
objects is not given back to the system. A child does neither. It has less priority than its parent, a bound on its
memory and on its CPU time, no secret in its environment, and ends with its parent.

`python -m mainspring.kernel.child_computation PARENT module:function` reads stdin to its end, calls the function with
these bytes, and writes the bytes that it returns to stdout.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from mainspring.kernel.parent_death import die_with_parent

MOST_MEMORY = 1024 * 1024 * 1024
MOST_SECONDS = 30  # of CPU time
_OUT_OF_MEMORY = 4
_NICE = 10
_PIECE = 1024 * 1024
_PASSED = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "TZ", "TZDIR", "LD_LIBRARY_PATH")


class TooMuchWork(Exception):
    """The child needed more memory or time than it has."""


async def compute(function: str, data: Sequence[bytes]) -> bytes:
    """What `module:function` returns for these bytes. Raises TooMuchWork, or RuntimeError if it fails otherwise."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, str(os.getpid()), function),
        env={name: os.environ[name] for name in _PASSED if name in os.environ},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_PIECE,
    )
    try:
        found = await _talked(child, data)
        code = await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if code == _OUT_OF_MEMORY:
        raise TooMuchWork(f"it needs more than {MOST_MEMORY // 1024**2} MiB of memory")
    if code == -signal.SIGXCPU:
        raise TooMuchWork(f"it takes more than {MOST_SECONDS} s of CPU time")
    if code:
        raise RuntimeError(f"the computation of {function} ended with {code}")
    return found


async def _talked(child: asyncio.subprocess.Process, data: Sequence[bytes]) -> bytes:
    assert child.stdin is not None and child.stdout is not None
    try:
        for part in data:
            for start in range(0, len(part), _PIECE):
                child.stdin.write(memoryview(part)[start : start + _PIECE])
                await child.stdin.drain()
        child.stdin.close()
    except (BrokenPipeError, ConnectionResetError):  # it has ended, and its status says why
        pass
    return await child.stdout.read()


def _bound() -> None:
    """The bounds of a child. Memory is address space: what it asks for beyond fails with MemoryError."""
    os.nice(_NICE)
    bounds = ((resource.RLIMIT_AS, MOST_MEMORY), (resource.RLIMIT_CPU, MOST_SECONDS), (resource.RLIMIT_CORE, 0))
    for kind, most in bounds:
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main(parent: int, function: str) -> int:
    end_with_parent = die_with_parent(signal.SIGKILL, parent)
    if end_with_parent is not None:
        end_with_parent()
    _bound()
    gc.disable()  # it ends soon
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function logs is no part of its answer
    module, _, name = function.partition(":")
    try:
        found: bytes = getattr(import_module(module), name)(sys.stdin.buffer.read())
        answer.write(found)
        answer.flush()
    except MemoryError:
        return _OUT_OF_MEMORY
    os._exit(0)  # nothing is taken down object by object


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
