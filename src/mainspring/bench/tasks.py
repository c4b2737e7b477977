"""The tasks of the benchmarks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from mainspring.sdk.app.app import Mainspring

app = Mainspring()


@app.task("bench.noop")
async def noop(**_payload: Any) -> None:
    """Does nothing."""


@app.task("bench.line")
async def line(number: int, **_payload: Any) -> None:
    """Prints one line."""
    print("processed", number)  # noqa: T201


@app.task("bench.print")
async def print_lines(number: int, size: int, **_payload: Any) -> None:
    """Prints lines that differ from run to run."""
    printed = 0
    while printed < size:
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        line = f"INFO order {number} of customer {number % 99991} charged {number % 9000} cents in {number % 89} ms"
        print(line)  # noqa: T201
        printed += len(line) + 1


@app.task("bench.fail")
async def fail(**_payload: Any) -> None:
    """Fails."""
    raise ValueError("as asked")


@app.task("bench.moment")
async def moment(**_payload: Any) -> float:
    """Returns its start time on this machine's clock (benchmarks run on one machine)."""
    return time.time()


@app.task("bench.sleep")
async def sleep(seconds: float) -> None:
    """Occupies a slot without using CPU."""
    await asyncio.sleep(seconds)


@app.task("bench.hold")
async def hold(file: str) -> None:
    """Runs until the file exists."""
    while not Path(file).exists():  # noqa: ASYNC110, ASYNC240 - another process creates it; a check takes microseconds
        await asyncio.sleep(0.05)
