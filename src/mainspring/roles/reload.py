"""`--reload`, for development: runs a worker as a child process and restarts it when the application's files change."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from watchfiles import Change, PythonFilter, awatch

from mainspring.kernel.parent_death import die_with_parent, kill_after_supervisor

# The exit codes for an application that cannot be loaded and for a wrong option.
CANNOT_START = 2
_DRAIN = 2.0
_LAST_MOMENTS = 4.0
_PAUSE = 1.0
_ORPHANED = 5.0  # how long it may take to stop when `mainspring up` was killed
_QUIET_MS = 100
_SHOWN = 3
_STDERR = 2


class Reloader:
    """Keeps one child process running. A child that exits with 0 (drained, or asked to stop) is not restarted."""

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self._argv = tuple(argv)
        self._folder = folder
        self._child: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Run until SIGTERM, SIGINT or the end of the child. Returns the exit code."""
        kill_after_supervisor(_ORPHANED)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        watching = asyncio.create_task(self._watch())
        say(f"watching the Python files in {self._folder}")
        try:
            while not self._stopping.is_set():
                self._changed.clear()
                code = await self._run_child()
                if self._stopping.is_set() or code == 0:
                    return code or 0
                if code is not None:
                    await self._wait_before_restart(code)
            return 0
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._end_child()

    async def _run_child(self) -> int | None:
        """Run the child once. Returns its exit code, or None if files have changed."""
        self._child = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=_STDERR,
            # Python compares bytecode with its source by size and whole seconds. A quick change of the same size would
            # not be noticed.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # Ctrl-C goes only to this process, which then ends the child
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
        if self._stopping.is_set():  # the stop was requested during the start
            self._child.send_signal(signal.SIGTERM)
        ended = asyncio.create_task(self._child.wait())
        changed = asyncio.create_task(self._changed.wait())
        await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
        if self._changed.is_set() and not self._stopping.is_set():
            await self._end_child()
            return None
        return await ended

    async def _wait_before_restart(self, code: int) -> None:
        """Wait for a file change if the application cannot be loaded. Wait only briefly after a crash."""
        if code == CANNOT_START:
            say("the worker cannot start; waiting for a file change")
            changed = asyncio.create_task(self._changed.wait())
            told = asyncio.create_task(self._stopping.wait())
            await asyncio.wait({changed, told}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            told.cancel()
        else:
            say(f"the worker ended with exit code {code}; restarting it")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _PAUSE)

    async def _end_child(self) -> None:
        """Drain the child for a short time, then ask it to stop its runs at once, then kill it."""
        child = self._child
        if child is None:
            return
        for number, patience in ((signal.SIGTERM, _DRAIN), (signal.SIGTERM, _LAST_MOMENTS), (signal.SIGKILL, None)):
            if child.returncode is not None:
                return
            with suppress(ProcessLookupError):
                child.send_signal(number)
            with suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), patience)

    async def _watch(self) -> None:
        async for changes in awatch(self._folder, watch_filter=PythonFilter(), step=_QUIET_MS):
            say("reloading: " + _describe(changes, self._folder))
            self._changed.set()

    def _on_signal(self, number: signal.Signals) -> None:
        self._stopping.set()
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):
                self._child.send_signal(number)


def say(text: str) -> None:
    sys.stderr.write(f"mainspring: {text}\n")
    sys.stderr.flush()


def _describe(changes: Iterable[tuple[Change, str]], folder: Path) -> str:
    """ "tasks.py modified, new.py added and 3 more"."""
    named = [
        f"{_relative_path(Path(path), folder)} {change.name}" for change, path in sorted(changes, key=lambda c: c[1])
    ]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return ", ".join(named[:_SHOWN]) + more


def _relative_path(path: Path, folder: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path
