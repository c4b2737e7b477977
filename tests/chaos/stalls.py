"""Runs a command and stops a random descendant process for a moment, several times a second, like a busy machine.

    python -m tests.chaos.stalls SEED COMMAND...

In a test that stops processes itself, they can be continued unexpectedly.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_LONGEST = 0.8
_PAUSE = 0.15
_AT_ONCE = 3
_GOING = "RSD"


def main() -> int:
    chance = random.Random(sys.argv[1])
    command = subprocess.Popen(sys.argv[2:])
    stopped: dict[int, float] = {}
    try:
        while command.poll() is None:
            now = time.monotonic()
            for pid in [pid for pid, until in stopped.items() if now >= until]:
                go_on(pid)
                del stopped[pid]
            going = [pid for pid in going_below(command.pid) if pid not in stopped]
            if going and len(stopped) < _AT_ONCE:
                pid = chance.choice(going)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    stopped[pid] = now + chance.random() ** 2 * _LONGEST
            time.sleep(chance.random() * _PAUSE)
    finally:
        for pid in stopped:
            go_on(pid)
    return command.returncode


def go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def going_below(root: int) -> list[int]:
    """The descendants of `root` that are not stopped."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(parent), []).append(int(folder.name))
                states[int(folder.name)] = state
    found, heirs = [], [root]
    while heirs:
        own = children.get(heirs.pop(), [])
        found += own
        heirs += own
    return sorted(pid for pid in found if states[pid] in _GOING)


if __name__ == "__main__":
    sys.exit(main())
