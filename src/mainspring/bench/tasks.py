"""The tasks that the benches run."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from mainspring.sdk.app.app import Mainspring

app = Mainspring()


@app.task("bench.noop")
async def noop(**_payload: Any) -> None:
    """Does nothing, as fast as it can."""


@app.task("bench.moment")
async def moment(**_payload: Any) -> float:
    """When it started, by this machine's clock (the benches run everything on one machine)."""
    return time.time()


@app.task("bench.sleep")
async def sleep(seconds: float) -> None:
    """Keeps its slot and costs nothing."""
    await asyncio.sleep(seconds)


@app.task("bench.hold")
async def hold(file: str) -> None:
    """Runs until there is a file of that name."""
    while not Path(file).exists():  # noqa: ASYNC110, ASYNC240 - somebody else makes it; a look takes microseconds
        await asyncio.sleep(0.05)
