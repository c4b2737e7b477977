"""An application whose middleware leaves a mark that tasks of each kind see."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from typing import Any

from mainspring import Context, Mainspring

app = Mainspring("around")
REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("REQUEST", default="none")


@app.middleware
def marked(ctx: Context) -> Iterator[None]:
    REQUEST.set(f"{ctx.task} of {ctx.job_id}")
    outcome: Any = yield
    ctx.log("outcome", outcome)


@app.middleware(around="submission")
def labelled(request: dict[str, Any]) -> Iterator[None]:
    request["labels"] = {"from": REQUEST.get().partition(" ")[0]}
    yield


@app.task
async def on_the_loop() -> str:
    return REQUEST.get()


@app.task
def in_a_thread() -> str:
    return REQUEST.get()


@app.task(executor="process")
def in_a_process() -> str:
    return REQUEST.get()


@app.task
def submits(ctx: Context) -> str:
    return ctx.submit(in_a_thread).job_id
