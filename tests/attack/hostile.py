"""Hostile commands, each run by a shell executor to its end. Prints what became of them, as JSON.

`python -m tests.attack.hostile isolated,sandbox` is a worker with these properties (`account`: commands run as the
account of a root worker). test_outliving.py starts it as root and as an ordinary user. Commands only signal processes
of their own worker, also where nothing holds them back.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import uvloop

from mainspring.kinds.shell.executor import ShellExecutor
from mainspring.wire.execution import ResourceLimits, RunSetup
from mainspring.worker.execution.attempt import Attempt, key_of
from mainspring.worker.processes.accounts import CommandAccounts, command_accounts
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.eventually import PATIENCE
from tests.worker.exchange_server import an_order
from tests.worker.sandboxes import sandbox_here

MARK = "HOSTILE_MARK"
STAYS = "trap '' TERM HUP INT; while :; do sleep 0.05; done"
LEAVES = f'(setsid sh -c "{STAYS}" <&- >&- 2>&- &) & sh -c "{STAYS}" & sleep 0.05; '
# The supervisor and the watchdog. In a namespace they are 1 and 0, and 0 would be the command's own process group.
CHAIN = "above=$(cut -d ' ' -f 4 /proc/$PPID/stat); [ $above -gt 1 ] || above=''; "
COMMANDS = {
    "leaves processes behind": LEAVES,
    "kills its supervisor and the watchdog": LEAVES + CHAIN + 'setsid sh -c "kill -9 $above $PPID"; sleep 0.3',
    "stops its supervisor": LEAVES + "kill -STOP $PPID; true",
    "sends its supervisor every signal": LEAVES + "for n in $(seq 1 64); do kill -$n $PPID; done 2>/dev/null; true",
    "says that all runs exceed a cap": LEAVES + "kill -USR1 $PPID; sleep 0.3; kill -USR2 $PPID; sleep 0.3; true",
}
# Only where it cannot reach anything else.
ENCLOSED = {
    "kills everything that it sees": LEAVES
    + "for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || kill -9 ${p#/proc/}; done; true",
    "kills everything": LEAVES + "kill -9 -1; true",
}
BOMB = "while :; do setsid sleep 60 & (sleep 60 &); sleep 0.002; done"


async def _ended(executor: ShellExecutor, command: str, mark: str, **setup: Any) -> dict[str, Any]:
    order = an_order("shell", command=command, setup=RunSetup(env={MARK: mark}, **setup))
    async with asyncio.timeout(PATIENCE):
        ending = await executor.execute(Attempt(order, key_of(order), 0.0))
    return {"status": ending.status, "error": ending.error, "left": left_of(mark)}


def left_of(mark: str) -> list[str]:
    """The processes with this mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


async def _all(words: set[str]) -> dict[str, Any]:
    watchdog = WatchdogClient()
    watchdog.start()
    executor = ShellExecutor(
        watchdog,
        kill_grace=0.3,
        sandbox=sandbox_here(),
        confine_all="sandbox" in words,
        accounts=command_accounts(None) if "account" in words else CommandAccounts(),
        isolated="isolated" in words,
    )
    enclosed = words & {"isolated", "sandbox"}
    found: dict[str, Any] = {"user": os.getuid()}
    try:
        for name, command in (COMMANDS | ENCLOSED if enclosed else COMMANDS).items():
            found[name] = await _ended(executor, command, str(uuid.uuid4()))
        found["bomb"] = await _ended(executor, BOMB, str(uuid.uuid4()), limits=ResourceLimits(processes=40))
    finally:
        watchdog.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(_all(set(sys.argv[1].split(","))))))
