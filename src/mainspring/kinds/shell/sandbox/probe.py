"""Runs one command while the worker starts, before it has an event loop or a thread."""

from __future__ import annotations

import os
import select
import signal
import time

from mainspring.worker.processes.command import SpawnOrder
from mainspring.worker.processes.watchdog.child import become

_PROBE_SECONDS = 20.0
_CHUNK = 1 << 16


def run_once(order: SpawnOrder) -> tuple[int, str]:
    """The exit code of the command and what it wrote."""
    output, theirs = os.pipe()
    us = os.getpid()
    pid = os.fork()
    if pid == 0:
        become(order.message(), theirs, theirs, None, None, None, us)
    os.close(theirs)
    text = b""
    with os.fdopen(output, "rb") as reader:
        deadline = time.monotonic() + _PROBE_SECONDS
        while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not (chunk := os.read(reader.fileno(), _CHUNK)):
                break
            text += chunk
        else:
            os.kill(pid, signal.SIGKILL)
            text = b"bwrap does not end"
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, text.decode(errors="replace").strip().replace("\n", "; ")
