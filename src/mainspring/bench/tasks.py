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
