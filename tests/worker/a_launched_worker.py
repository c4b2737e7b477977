"""A worker as `mainspring worker` starts it: the launcher, the parent watchdog and the worker process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvloop

from tests.eventually import PATIENCE

from .exchange_server import ExchangeServer
from .processes import alive

PROGRAM = """
import sys
from mainspring.worker.processes.launch import launch
launched = launch()
from mainspring.kernel.config import Timing
from mainspring.roles.worker import WorkerOptions, serve_worker
from mainspring.worker import worker
worker._FAREWELL = 30.0
patient = Timing(beat=0.4, kill=30.0, rescue=60.0, cut_off_grace=60.0, kill_grace=0.3, drain_grace=30.0)
slots = int(sys.argv[2])
options = WorkerOptions(
    sys.argv[1], "secret", ("default",), slots, None, "launched_app:app", "info", timing=patient, launched=launched
)
sys.exit(serve_worker(options))
"""
APP = """
import asyncio, ctypes, os, subprocess, sys
from mainspring import Mainspring
app = Mainspring()

def note(path, pid):
    with open(path, "a") as file:
        file.write(f"{pid}\\n")

@app.task
async def sleeps(path: str, seconds: float = 60) -> None:
    note(path, os.getpid())
    await asyncio.sleep(seconds)

@app.task
async def noop() -> None: ...

@app.task
async def exits(code: int) -> None:
    os._exit(code)

@app.task
async def crashes() -> None:
    ctypes.string_at(0)

@app.task
def leaves_processes_behind(path: str) -> None:
    child = subprocess.Popen(["/bin/sleep", "60"], env={}, start_new_session=True)
    daemon = "import os; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); "
    daemon += f"open({path!r}, 'a').write(f'{os.getpid()}\\\\n'); os.execv('/bin/sleep', ['sleep', '60'])"
    subprocess.run([sys.executable, "-I", "-S", "-c", daemon], env={})
    note(path, child.pid)
    os.fork() or os.execv("/bin/sleep", ["sleep", "60"])
"""


class Launched:
    """The processes. `worker` is the process that runs the tasks."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        (self.parent_watchdog,) = children_of(process.pid)
        (self.worker,) = children_of(self.parent_watchdog)

    @property
    def pid(self) -> int:
        """What the user knows."""
        return self.process.pid

    def state(self) -> str:
        return Path(f"/proc/{self.worker}/stat").read_text().rpartition(")")[2].split()[0]

    async def said(self) -> str:
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()

    async def until_state(self, *states: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.state() not in states:
                await asyncio.sleep(0.005)  # the state of a process has no event


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def below(pid: int) -> list[int]:
    """All processes below this one."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()):
                found += [child, *below(child)]
    return found


@asynccontextmanager
async def a_launched_worker(
    server: ExchangeServer, folder: Path, slots: int = 4, **options: Any
) -> AsyncIterator[Launched]:
    (folder / "launched_app.py").write_text(APP)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, server.url, str(slots), cwd=folder, stderr=subprocess.PIPE, **options
    )
    launched = None
    try:
        await server.until(lambda: any(server.secrets.values()))
        launched = Launched(process)
        yield launched
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if launched is not None:
            for pid in (launched.parent_watchdog, launched.worker):
                if alive(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, 9)


def with_a_launched_worker(
    folder: Path, test: Callable[[ExchangeServer, Launched], Awaitable[None]], slots: int = 4, **options: Any
) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(PATIENCE),
            ExchangeServer() as server,
            a_launched_worker(server, folder, slots, **options) as launched,
        ):
            await test(server, launched)

    uvloop.run(run())
