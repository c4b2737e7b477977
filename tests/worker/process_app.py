"""Process tasks for the tests: each does one thing that a run may do to its interpreter."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from mainspring import Context, GiveUp, Mainspring, Retry

app = Mainspring()


def process(function: Callable[..., Any]) -> Any:
    return app.task(executor="process")(function)


@process
def pid() -> int:
    return os.getpid()


@process
async def async_pid() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@process
def weekday(day: date, ctx: Context, offset: int = 0) -> dict[str, object]:
    return {"weekday": day.weekday() + offset, "key": ctx.idempotency_key, "attempt": ctx.attempt, "task": ctx.task}


@process
def exits(code: int) -> None:
    print("last words")  # noqa: T201
    os._exit(code)


@process
def crashes() -> None:
    ctypes.string_at(0)


@process
def raises(how: str) -> None:
    if how == "Retry":
        raise Retry("rate limited", after=30)
    if how == "GiveUp":
        raise GiveUp("no such account")
    raise FileNotFoundError(how)


@process
def snoozes(ctx: Context) -> None:
    try:
        ctx.snooze("10m")
    except Exception:  # noqa: BLE001 - which does not catch it
        return


@process
async def snoozes_on_a_loop(ctx: Context) -> list[int]:
    if ctx.snoozes == 0:
        ctx.snooze("10m")
    return [ctx.attempt, ctx.max_attempts, ctx.snoozes]


@process
def surroundings() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "env": dict(os.environ),
        "folder": os.getcwd(),
        "files": os.listdir(),
        "umask": os.umask(0o022),
        "own": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "term": str(signal.getsignal(signal.SIGTERM)),
        "alarm": signal.getitimer(signal.ITIMER_REAL),
    }


@process
def makes_a_mess() -> dict[str, Any]:
    found = {"pid": os.getpid(), "folder": os.getcwd(), "files": os.listdir()}
    Path("deep/er").mkdir(parents=True)
    Path("deep/er/file").write_text("rubbish")
    os.environ["RUBBISH"] = "1"
    os.environ.pop("PATH")
    os.umask(0)
    os.chdir("/")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 60.0)
    sys.stdout = None
    return found


@process
def spins(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    while True:
        pass


@process
def holds_the_interpreter(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    sum(itertools.repeat(0))  # never comes to an end, and never looks for signals


@process
def waits(path: str, ctx: Context) -> None:
    ctx.add_cleanup(note, path, "first added")
    ctx.add_cleanup(note, path, "last added")
    try:
        note(path, "begun")
        time.sleep(60)
    except Exception:  # noqa: BLE001 - to see that the request is none
        note(path, "no Exception")
    finally:
        note(path, f"finally {ctx.cancelled}")


@process
async def awaits(path: str, ctx: Context) -> None:
    async def clean_up() -> None:
        await asyncio.sleep(0)
        note(path, "cleaned up")

    ctx.add_cleanup(clean_up)
    try:
        note(path, "begun")
        await asyncio.sleep(60)
    finally:
        note(path, f"finally {ctx.cancelled}")


@process
def fails_and_cleans_up(path: str, ctx: Context) -> None:
    ctx.add_cleanup(note, path, "cleaned up")
    ctx.add_cleanup(lambda: 1 / 0)
    raise ValueError("in vain")


@process
def leaves_a_process(path: str) -> None:
    subprocess.Popen(f"setsid sh -c 'echo $$ > {path}; sleep 60' & sleep 0.1", shell=True).wait()
    while not Path(path).exists() or not Path(path).read_text():
        time.sleep(0.005)


@process
def leaves_a_thread() -> int:
    threading.Thread(target=threading.Event().wait).start()
    return os.getpid()


@process
async def leaves_loose_ends() -> int:
    app.loose = asyncio.create_task(asyncio.sleep(60))  # type: ignore[attr-defined]
    await asyncio.to_thread(lambda: None)
    return os.getpid()


@process
def forks() -> str:
    if os.fork() == 0:
        return "the copy"
    os.wait()
    return "the task"


@process
def ends_forks_at_once(count: int) -> list[int]:
    """The signals that ended processes which were told to end right after the fork."""
    ends = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            signal.pause()
            os._exit(0)
        os.kill(pid, signal.SIGTERM)
        ends.append(os.WTERMSIG(os.waitpid(pid, 0)[1]))
    return sorted(set(ends))


@process
def maps_in_processes() -> list[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, 2, -3])


@process
def talks(ctx: Context) -> None:
    print("one")  # noqa: T201
    print("two", file=sys.stderr)  # noqa: T201
    ctx.log("three", 3)
    os.system("echo four")
    ctx.progress(0.5, "half way")
    ctx.progress(1.0)
    sys.stdout.write("no end of line")


@process
def prints(lines: int) -> None:
    for number in range(lines):
        print(number, "x" * 1000)  # noqa: T201


@process
def takes(size: int) -> int:
    return len(bytearray(size))


@process
def multiplies(most: int) -> None:
    """At most so many processes, for at most 20 s."""
    until, born = time.monotonic() + 20, 0
    while time.monotonic() < until:
        if born < most and os.fork() == 0:
            signal.alarm(20)
            time.sleep(20)
            os._exit(0)
        born += 1


@process
def fills_its_folder(files: int) -> None:
    for number in range(files):
        Path(str(number)).write_bytes(bytes(100_000))
    time.sleep(60)


@process
def burns(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@process
def echoes(text: str) -> int:
    return len(text)


@process
def opens_files() -> int:
    return len([open("/dev/null") for _ in range(100)])


@process
def tells_oddly(path: str, ctx: Context) -> None:
    """Numbers and words as applications have them: numpy's, a database's, somebody's."""
    note(path, "began")
    ctx.progress(Decimal("0.25"), "a Decimal")  # type: ignore[arg-type]
    ctx.progress(True, 100)  # type: ignore[arg-type]
    ctx.progress(0.5, "half \ud800 of it")
    ctx.progress(0.75, "x" * 5_000_000)
    raise Retry("later", after=Decimal(30))  # type: ignore[arg-type]


@process
def talks_to_the_worker(path: str, words: str) -> None:
    note(path, "began")
    os.write(3, bytes.fromhex(words))
    signal.pause()


@process
def blocks_signals() -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    return os.getpid()


@process
def loses_its_output(how: str) -> int:
    match how:
        case "closed":
            os.close(1)
        case "redirected":
            os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        case "slowed down":
            os.nice(1)
    return os.getpid()


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")
