"""Tasks for the process tests."""

from __future__ import annotations

import asyncio

from mainspring import Context, Mainspring

app = Mainspring()


@app.task
async def hello(name: str = "world") -> str:
    return f"hello {name}"


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task("fails.twice")
async def fails_twice(ctx: Context) -> int:
    if ctx.attempt < 3:
        raise ValueError(f"attempt {ctx.attempt} is not good enough")
    return ctx.attempt


@app.task
async def doze(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@app.task("prints.and.fails")
async def prints_and_fails() -> None:
    print("before it failed")  # noqa: T201
    raise ValueError("no")
