"""Shell runs: each in its own session and process group, with an environment of its own, dead when its worker is.

How a command starts so that it can never run unguarded is told in child.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import msgspec

from mainspring.domain.job import SHELL_TASK
from mainspring.kernel.logs import get_logger
from mainspring.sdk.context import idempotency_key, rfc3339
from mainspring.wire.exchange import RunOrder
from mainspring.worker.attempt import Attempt, Ending, Execute, Heeds, ending_after_stop, failed
from mainspring.worker.executors.child import OUTPUT_KEPT, Child, start_behind_gate
from mainspring.worker.executors.groups import signal_group, wait_until_gone
from mainspring.worker.watchdog_link import WatchdogLink

# The kernel takes 128 KiB for one variable; the rest is for its name and the other ones.
_MOST_PAYLOAD = 120 * 1024
_INHERITED = ("PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "TMPDIR")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How long output may still trickle in once the whole group is gone: only a process that left the group holds the pipe.
_LAST_OUTPUT = 0.2

log = get_logger("shell")


class ShellExecutor:
    killable = True

    def __init__(self, watchdog: WatchdogLink, *, kill_grace: float, environ: Mapping[str, str] | None = None) -> None:
        self._watchdog = watchdog
        self._kill_grace = kill_grace
        self._environ = base_environment(os.environ if environ is None else environ)
        self._groups: set[int] = set()

    def offers(self) -> dict[str, Execute]:
        return {SHELL_TASK: self.execute}

    def kill_all(self) -> None:
        for group in self._groups:
            signal_group(group, signal.SIGKILL)

    async def execute(self, attempt: Attempt) -> Ending:
        news = asyncio.Event()
        attempt.on_stop, attempt.heeds = news.set, Heeds.REQUEST
        order = attempt.order
        if not order.command:
            return failed("command: a shell run needs a command, a string or a list of arguments", retry=False)
        if memoryview(order.payload).nbytes > _MOST_PAYLOAD:
            return failed(f"payload: a shell run takes at most {_MOST_PAYLOAD} bytes", retry=False)
        argv = ["/bin/sh", "-c", order.command] if isinstance(order.command, str) else order.command
        try:
            child = await start_behind_gate(argv, self._environ | environment_of(order), news)
        except (OSError, ValueError) as error:
            return failed(f"the command could not be started: {error}", retry=isinstance(error, OSError))
        try:
            return await self._see_through(attempt, child, news)
        finally:
            child.close()

    async def _see_through(self, attempt: Attempt, child: Child, news: asyncio.Event) -> Ending:
        self._groups.add(child.group)
        attempt.kill = partial(signal_group, child.group, signal.SIGKILL)
        try:
            self._watchdog.guard(child.group)
            if attempt.stopping is None and not attempt.fenced:
                child.open_gate()
            else:
                child.shut_gate()
            await self._until_gone(child, attempt, news)
        except OSError as error:
            return failed(f"the command could not be guarded: {error}")
        finally:
            signal_group(child.group, signal.SIGKILL)
            attempt.kill = None  # the number may soon be somebody else's
            self._groups.discard(child.group)
            self._watchdog.release(child.group)
        await child.output_ended(_LAST_OUTPUT)
        log.debug("output", run=str(attempt.order.run_id), bytes=child.output_bytes, tail=child.output)
        return _ending(attempt, child)

    async def _until_gone(self, child: Child, attempt: Attempt, news: asyncio.Event) -> None:
        """Returns when no process of the group is left. What a command leaves behind dies with its run."""
        await news.wait()
        if child.exit_code is None and attempt.stopping is not None:
            signal_group(child.group, signal.SIGTERM)
            await wait_until_gone(child.group, timeout=self._kill_grace, leader_reaped=False)
            signal_group(child.group, signal.SIGKILL)
        while child.exit_code is None:
            news.clear()
            await news.wait()
        signal_group(child.group, signal.SIGKILL)
        await wait_until_gone(child.group, leader_reaped=True)


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a command gets of the worker's own environment: enough to find programs and to write text, no secrets."""
    kept = {name: environ[name] for name in _INHERITED if name in environ}
    kept |= {name: value for name, value in environ.items() if name.startswith("LC_")}
    kept.setdefault("PATH", _DEFAULT_PATH)
    return kept


def environment_of(order: RunOrder) -> dict[str, str]:
    return {
        "MAINSPRING_JOB_ID": order.job_id,
        "MAINSPRING_RUN_ID": str(order.run_id),
        "MAINSPRING_ATTEMPT": str(order.attempt),
        "MAINSPRING_SCHEDULED_FOR": rfc3339(order.scheduled_for),
        "MAINSPRING_IDEMPOTENCY_KEY": idempotency_key(order.job_id, order.scheduled_for),
        "MAINSPRING_PAYLOAD": bytes(memoryview(order.payload)).decode(),
    }


def _ending(attempt: Attempt, child: Child) -> Ending:
    text = child.output
    if attempt.stopping is not None:
        return ending_after_stop(attempt, text)
    if child.exit_code == 0:
        result: dict[str, object] = {"exit_code": 0, "output": text}
        if child.output_bytes > OUTPUT_KEPT:
            result["output_bytes"] = child.output_bytes
        return Ending(result=msgspec.Raw(msgspec.json.encode(result)))
    tail = f": {text.rstrip()}" if text.strip() else ""
    return failed(f"{_in_words(child.exit_code)}{tail}")


def _in_words(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"killed by signal {-exit_code}"
