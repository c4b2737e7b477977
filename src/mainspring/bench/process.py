"""A process of the product that a benchmark starts, measures and kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from mainspring.domain.errors import Unavailable
from mainspring.worker.processes.watchdog.tree import descendants

_GRACE = 10.0
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class Process:
    """Runs `mainspring <arguments>` without the MAINSPRING_* variables of this process, and without settings file."""

    def __init__(self, name: str, arguments: list[str], environment: Mapping[str, str], log: IO[bytes]) -> None:
        self.name = name
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MAINSPRING_")}
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "mainspring", *arguments, "--log-level", "warning"],
            env={**clean, "MAINSPRING_CONFIG": os.devnull, **environment},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def lives(self) -> bool:
        return self._popen.poll() is None

    def check_alive(self) -> None:
        if not self.lives():
            raise Unavailable(f"the process {self.name} ended with {self._popen.returncode} during the benchmark")

    def peak_mb(self) -> float | None:
        """The peak memory of the process, or of the largest one below it: a worker has other processes beside the one
        that runs the tasks. None on systems without /proc."""
        peaks = []
        for pid in (self.pid, *descendants(self.pid)):
            with suppress(FileNotFoundError, ProcessLookupError):
                if found := _PEAK.search(Path(f"/proc/{pid}/status").read_text()):
                    peaks.append(int(found[1]) / 1024)
        return max(peaks, default=None)

    def kill(self) -> None:
        """kill -9: the process cannot sign off."""
        self._popen.kill()
        self._popen.wait()

    def ask_to_end(self) -> None:
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)

    def wait_for_end(self) -> None:
        try:
            self._popen.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.kill()

    def stop_tree(self) -> list[int]:
        """Stop this process and all processes below it, like a machine that vanishes. Returns their pids."""
        stopped: list[int] = []
        found = [self.pid]
        while found:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped += found
            found = [pid for parent in stopped for pid in _children(parent) if pid not in stopped]
        return stopped


def _children(pid: int) -> list[int]:
    """The children of all threads of the process, read from /proc."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return found
