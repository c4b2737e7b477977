"""Processes of protocol workers: started with orders on stdin, ended by closing it.

Each reports how its workers fared.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import msgspec

from mainspring.domain.errors import Unavailable

R = TypeVar("R", bound=msgspec.Struct)

REGISTERED = b"registered\n"
MEASURE = b"measure\n"
_END_WITHIN = 30.0


class WorkerProcesses(Generic[R]):
    """One process for each server. `module` is what they run, and `report` what each prints at its end."""

    def __init__(self, module: str, report: type[R]) -> None:
        self._module = module
        self._report = report
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self, orders: Sequence[Any]) -> None:
        """Start a process for each of the orders, and wait until the workers of all are registered."""
        for order in orders:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", self._module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                limit=2**24,
            )  # fmt: skip
            self._processes.append(process)
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(order) + b"\n")
        for process in self._processes:
            assert process.stdout is not None
            if await process.stdout.readline() != REGISTERED:
                raise Unavailable("the workers of the bench did not start")

    def measure(self) -> None:
        """Forget what was counted before."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(MEASURE)

    async def end(self) -> list[R]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        reports = []
        for process in self._processes:
            assert process.stdout is not None
            reports.append(msgspec.json.decode(await process.stdout.readline(), type=self._report))
        return reports

    async def close(self) -> None:
        for process in self._processes:
            await _end(process)


@asynccontextmanager
async def worker_processes(
    module: str, report: type[R], orders: Sequence[msgspec.Struct]
) -> AsyncIterator[WorkerProcesses[R]]:
    """All workers registered; the processes ended at last."""
    processes = WorkerProcesses(module, report)
    try:
        await processes.start(orders)
        yield processes
    finally:
        await processes.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_WITHIN):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
