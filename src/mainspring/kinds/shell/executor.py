"""Shell commands: each is a process tree with its own folder and environment, and dies with its worker.

The watchdog starts the command and reports when the last of its processes is gone (worker/processes/watchdog). This
module prepares the command, handles its output, and stops it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from mainspring.domain.run_key import key_of, rfc3339
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.config import MAX_SHELL_PAYLOAD_BYTES
from mainspring.kernel.logs import get_logger
from mainspring.kinds.shell import KIND
from mainspring.kinds.shell.sandbox.bubblewrap import Bubblewrap, NoSandbox
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import Cause, RunSetup
from mainspring.wire.trace_context import traceparent
from mainspring.worker.about_order import about
from mainspring.worker.execution.attempt import (
    Attempt,
    AttemptEnding,
    Execute,
    OpenLog,
    StopSupport,
    ending_after_stop,
    failed,
    grace_of,
)
from mainspring.worker.execution.attempt_usage import AttemptUsage
from mainspring.worker.execution.run_secrets import variables_of
from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.executors.setting import ExecutorSetting
from mainspring.worker.output.process_output import Output
from mainspring.worker.processes.accounts import Account, CommandAccounts, NotAllowed
from mainspring.worker.processes.caps import NO_CAPS, Caps, log_capped
from mainspring.worker.processes.command import Command, SpawnOrder
from mainspring.worker.processes.environment import base_environment
from mainspring.worker.processes.watchdog_client import WatchdogClient

_NO_SETUP = RunSetup()
_DENIED, _TAIL_READ = "permission denied", 2048
_AS = "commands of this worker run as {}; give it access, or start the worker with another --run-as"
# sh says "Permission denied" of a command that is nowhere if it may not look into a folder of PATH.
_NO_SUCH_COMMAND = 127
_NOT_FOUND = "there is no such command in the folders of PATH that {} may read; commands of this worker run as it"
_ALLOW = "start it with --run-as-allow, or remove the field from the job"

log = get_logger("shell")


def build(setting: ExecutorSetting) -> ShellExecutor:
    return ShellExecutor(
        setting.watchdog,
        kill_grace=setting.kill_grace,
        open_log=setting.open_log,
        folders=setting.folders,
        sandbox=setting.sandbox,
        confine_all=setting.confine_all,
        accounts=setting.accounts,
        isolated=setting.isolated,
        caps=setting.caps,
        clock=setting.clock,
    )


class ShellExecutor:
    killable = True
    isolates = True
    has_processes = True

    def __init__(
        self,
        watchdog: WatchdogClient,
        *,
        kill_grace: float,
        environ: Mapping[str, str] | None = None,
        open_log: OpenLog | None = None,
        folders: WorkFolders | None = None,
        sandbox: Bubblewrap | NoSandbox | None = None,
        confine_all: bool = False,
        accounts: CommandAccounts | None = None,
        isolated: bool = False,
        caps: Caps = NO_CAPS,
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        """`sandbox` is for the jobs that ask for it, and for every command with `confine_all`. `isolated`: each command
        has a pid namespace of its own."""
        self._clock = clock
        self._sandbox = sandbox or NoSandbox("it was started without", "")
        self._confine_all = confine_all
        self._watchdog = watchdog
        self._kill_grace = kill_grace
        self._environ = base_environment(os.environ if environ is None else environ)
        self._open_log = open_log
        self._accounts = accounts or CommandAccounts()
        self._isolated = isolated
        self._caps = caps
        self._folders = folders or WorkFolders(shared=self._accounts.change)
        self._commands: set[Command] = set()

    def offers(self) -> dict[str, Execute]:
        return {KIND.name: self.execute}

    def kill_all(self) -> None:
        for command in self._commands:
            command.kill()

    async def execute(self, attempt: Attempt) -> AttemptEnding:
        news = asyncio.Event()
        attempt.on_stop, attempt.stops_by = news.set, StopSupport.REQUEST
        order = attempt.order
        if not order.command:
            return failed("command: a shell run needs a command, a string or a list of arguments", retry=False)
        if memoryview(order.payload).nbytes > MAX_SHELL_PAYLOAD_BYTES:
            return failed(f"payload: a shell run takes at most {MAX_SHELL_PAYLOAD_BYTES} bytes", retry=False)
        if isinstance(self._sandbox, NoSandbox) and self._is_confined(order):
            return failed(f"sandbox: this worker offers none: {self._sandbox}", retry=False)
        try:
            account = self._accounts.choose(order.setup.run_as if order.setup is not None else None)
        except NotAllowed as name:
            return failed(f"run_as: this worker does not run commands as {name}; {_ALLOW}", retry=False)
        try:
            folder = self._folders.make(account)
        except OSError as error:
            return failed(f"no working folder could be made: {error}")
        try:
            return await self._run_in(folder, account, attempt, news)
        finally:
            await self._folders.remove(folder)

    async def _run_in(
        self, folder: Path, account: Account | None, attempt: Attempt, news: asyncio.Event
    ) -> AttemptEnding:
        try:
            spawn_order = self._spawn_order(attempt.order, folder, account)
        except ValueError as error:
            return failed(str(error), retry=False)
        try:
            output = Output(attempt, self._open_log, self._clock)
        except OSError as error:
            return failed(f"the command could not be started: {error}")
        try:
            command = await self._watchdog.spawn(spawn_order, output=output.writers[0], errors=output.writers[1])
            await self._until_gone(command, attempt, news)
            stopped = attempt.stopping is not None  # the command has ended; only its log may take longer
            await output.finish()
        except (OSError, ValueError) as error:
            return failed(f"the command could not be started: {error}", retry=isinstance(error, OSError))
        finally:
            output.close()
        log.debug("command ended", **about(attempt.order), exit_code=command.exit_code, bytes=output.size)
        return _ending(attempt, command, output, account, stopped=stopped)

    def _spawn_order(self, order: RunOrder, folder: Path, account: Account | None) -> SpawnOrder:
        setup = order.setup or _NO_SETUP
        log_capped(order, self._caps)
        assert order.command
        argv = ["/bin/sh", "-c", order.command] if isinstance(order.command, str) else order.command
        trace = {"TRACEPARENT": traceparent(order.run_id, order.fence)}  # unless the job brings its own
        inside = trace | variables_of(order) | environment_of(order)
        _refuse_nul(argv, inside)
        if not self._is_confined(order):
            own = {} if account is None else account.environment(str(folder))
            environ = self._environ | own | {"TMPDIR": str(folder)} | inside
            plain = SpawnOrder(argv, environ, str(folder))
        else:
            assert isinstance(self._sandbox, Bubblewrap)
            plain = self._sandbox.confine(argv, folder, self._environ, inside)
        return msgspec.structs.replace(
            plain, limits=setup.limits, isolated=self._isolated, account=account, caps=self._caps
        )

    def _is_confined(self, order: RunOrder) -> bool:
        return self._confine_all or (order.setup is not None and order.setup.sandbox is not None)

    async def _until_gone(self, command: Command, attempt: Attempt, news: asyncio.Event) -> None:
        """Returns when no process of the tree is left. A command that is asked to stop is killed after its grace."""
        self._commands.add(command)
        attempt.kill = command.kill
        attempt.usage = used = AttemptUsage(command.sample)
        command.on_sample = used.sampled
        command.on_news(news.set)
        try:
            if attempt.stopping is not None or attempt.fenced:
                command.kill()  # asked to stop while it was started
            while not command.exited.is_set() and attempt.stopping is None:
                news.clear()
                await news.wait()
            if not command.exited.is_set():
                command.terminate()
                with suppress(TimeoutError):
                    async with self._clock.timeout(grace_of(attempt.order, self._kill_grace)):
                        await command.gone.wait()
                command.kill()
            await command.gone.wait()
        finally:
            command.close()
            attempt.kill = used.request_sample = None
            if command.usage is not None:
                used.ended(command.usage.cpu_seconds, command.usage.peak_bytes)
            self._commands.discard(command)


def environment_of(order: RunOrder) -> dict[str, str]:
    return {
        "MAINSPRING_JOB_ID": order.job_id,
        "MAINSPRING_RUN_ID": str(order.run_id),
        "MAINSPRING_ATTEMPT": str(order.attempt),
        "MAINSPRING_SCHEDULED_FOR": rfc3339(order.scheduled_for),
        "MAINSPRING_IDEMPOTENCY_KEY": key_of(order),
        "MAINSPRING_PAYLOAD": bytes(memoryview(order.payload)).decode(),
    }


def _refuse_nul(argv: list[str], environ: Mapping[str, str]) -> None:
    """Servers refuse a NUL too. No program can get it, and in a sandbox it would be more than text."""
    if any("\0" in word for word in argv):
        raise ValueError("command: contains the character NUL; remove it")
    for name, value in environ.items():
        if "\0" in name or "\0" in value:
            raise ValueError(f"env: {name!r} contains the character NUL; remove it")


def _ending(
    attempt: Attempt, command: Command, output: Output, account: Account | None, *, stopped: bool
) -> AttemptEnding:
    if stopped:
        return ending_after_stop(attempt, output.error_text)
    if command.exit_code == 0 and command.breach is None:
        result: dict[str, object] = {"exit_code": 0, "output": output.text}
        if output.size > output.kept:
            result["output_bytes"] = output.size
        return AttemptEnding(result=msgspec.Raw(msgspec.json.encode(result)))
    text = output.error_text
    tail = f": {text.rstrip()}" if text.strip() else ""
    if account is not None and command.breach is None and _DENIED in text[-_TAIL_READ:].lower():
        words = _NOT_FOUND if command.exit_code == _NO_SUCH_COMMAND else _AS
        tail += f" ({words.format(account.name)})"
    return failed(f"{command.breach or _in_words(command.exit_code)}{tail}", cause=Cause(exit_code=command.exit_code))


def _in_words(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"killed by signal {-exit_code}"
