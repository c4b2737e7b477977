"""The tasks of the clusters. Every attempt writes lines into the effect ledger: at its start, every tenth of a second,
and at its end. Each line is a single O_APPEND write of the process that does the work."""

from __future__ import annotations

import asyncio
import json
import os
import time

from mainspring import Context, Mainspring

LEDGER_VARIABLE = "ARENA_LEDGER"
TICK = 0.1
POISONED = 99  # the exit code of a process that `note.poison` ends

app = Mainspring()


class Failure(Exception):
    """The error of a task that should fail."""


def write(context: Context, what: str) -> None:
    line = json.dumps(
        {
            "run": context.run_id,
            "attempt": context.attempt,
            "job": context.job_id,
            "for": context.scheduled_for.isoformat(),
            "what": what,
            "pid": os.getpid(),
            "at": time.monotonic(),
        }
    )
    handle = os.open(os.environ[LEDGER_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode() + b"\n")
    finally:
        os.close(handle)


@app.task("note")
async def note(ctx: Context, seconds: float = 0.0, failures: int = 0, account: str = "") -> int:
    """Fails `failures` times, then works for `seconds`. `account` is a key of limits."""
    write(ctx, "start")
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(TICK, left))
        write(ctx, "tick")
    if ctx.attempt <= failures:
        write(ctx, "fail")
        raise Failure(f"attempt {ctx.attempt} of a task that fails {failures} times")
    write(ctx, "end")
    return ctx.attempt


@app.task("note.event")
async def note_events(
    ctx: Context, event: dict[str, object] | None = None, events: list[dict[str, object]] | None = None
) -> int:
    """A run that events start."""
    write(ctx, "start")
    write(ctx, "end")
    return 1 if events is None else len(events)


@app.task("note.thread")
def note_in_a_thread(ctx: Context, seconds: float = 0.0) -> int:
    """The same in a thread. It checks for a cancel."""
    write(ctx, "start")
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if ctx.wait_for_cancel(min(TICK, left)):
            return 0
        write(ctx, "tick")
    write(ctx, "end")
    return ctx.attempt


@app.task("note.process", executor="process")
def note_in_a_process(ctx: Context, seconds: float = 0.0, end_badly: bool = False) -> int:
    """The same in a child process, which can exit without a result on the first attempt."""
    write(ctx, "start")
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(TICK, left))
        write(ctx, "tick")
    if end_badly and ctx.attempt == 1:
        write(ctx, "fail")
        os._exit(1)
    write(ctx, "end")
    return ctx.attempt


@app.task("note.poison")
async def note_and_end_the_process(ctx: Context, attempts: int) -> int:
    """Ends its process in each of the first `attempts`: that of the worker, or a child that it has for itself."""
    write(ctx, "start")
    await asyncio.sleep(TICK)
    if ctx.attempt <= attempts:
        write(ctx, "poison")
        os._exit(POISONED)
    write(ctx, "end")
    return ctx.attempt


@app.task("note.snooze")
async def note_and_snooze(ctx: Context, times: int) -> int:
    """Asks to come back later so many times."""
    write(ctx, "start")
    await asyncio.sleep(TICK)
    if ctx.snoozes < times:
        write(ctx, "fail")
        ctx.snooze(2 * TICK)
    write(ctx, "end")
    return ctx.attempt


def printed(run: str, attempt: int, lines: int) -> str:
    """The output of `note.print`."""
    return "".join(f"{run} {attempt} {number}\n" for number in range(lines))


@app.task("note.print")
async def note_and_print(ctx: Context, lines: int, pause: float = 0.0) -> int:
    """Prints some lines at a time and reports its progress."""
    write(ctx, "start")
    text = printed(ctx.run_id, ctx.attempt, lines).splitlines(keepends=True)
    for first in range(0, lines, 100):
        print("".join(text[first : first + 100]), end="")  # noqa: T201 - what it is for
        ctx.progress(first / lines, f"line {first}")
        await asyncio.sleep(pause)
        write(ctx, "tick")
    write(ctx, "end")
    return ctx.attempt


def shell_command(ledger: str, ticks: int) -> str:
    """A shell job that does the same. Its clock is /proc/uptime, which `witness` converts to the monotonic clock."""
    line = (
        '{\\"run\\":\\"$MAINSPRING_RUN_ID\\",\\"attempt\\":$MAINSPRING_ATTEMPT,\\"job\\":\\"$MAINSPRING_JOB_ID\\",'
        '\\"for\\":\\"$MAINSPRING_SCHEDULED_FOR\\",\\"what\\":\\"$1\\",\\"pid\\":$$,\\"uptime\\":$up}'
    )
    return (
        f'say() {{ read -r up idle < /proc/uptime; echo "{line}" >> {ledger}; }}; '
        f"say start; n=0; while [ $n -lt {ticks} ]; do sleep {TICK}; say tick; n=$((n+1)); done; say end"
    )


# Kills the supervisor and the watchdog, if the command can reach them.
_HOSTILE = "above=$(cut -d ' ' -f 4 /proc/$PPID/stat); [ $above -gt 1 ] || above=; kill -9 $above $PPID; "


def family_command(ledger: str, ticks: int, *, hostile: bool = False) -> str:
    """A shell job with two children that run longer than their parent: one in its own session, one that ignores
    TERM. If it is `hostile`, it tries to kill those who would end them."""
    child = shell_command(ledger, ticks + 30).replace("say start; ", "").replace("; say end", "")
    quoted = child.replace("'", "'\\''")
    attack = _HOSTILE if hostile else ""
    return f"setsid sh -c '{quoted}' & sh -c 'trap \"\" TERM; {quoted}' & {attack}{shell_command(ledger, ticks)}"
