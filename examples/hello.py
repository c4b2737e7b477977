"""A first application with three tasks.

Start it from the root of the repository:

    mainspring up --app examples.hello:app

Use it from a second terminal in the same folder:

    mainspring submit hello name=you --wait
    mainspring submit add a=2 b=40 --wait
    mainspring job clock

Or use it from Python:

    python -m examples.hello
"""

from __future__ import annotations

from datetime import datetime

from mainspring import Context, Mainspring

app = Mainspring()


@app.task
async def hello(name: str = "world") -> str:
    """An async task. It runs on the worker's event loop, together with other tasks."""
    return f"Hello, {name}!"


@app.task(timeout="10s", retries=1)
def add(a: int, b: int) -> int:
    """An ordinary function. It runs in a thread."""
    return a + b


@app.cron("* * * * *")
@app.task
def clock(ctx: Context) -> str:
    """Runs each minute. `ctx.scheduled_for` is the minute that this run stands for, no matter how late it starts."""
    line = f"It is {datetime.now():%H:%M:%S}; this run was due at {ctx.scheduled_for:%H:%M:%S} UTC."
    print(line, flush=True)
    return line


if __name__ == "__main__":
    handle = hello.submit(name="Python")
    print(f"submitted job {handle.job_id}")
    print(handle.result(timeout=30))
