"""A warm child process, seen from the worker: it gets runs over its channel, and its output is the log of the runs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.logs import get_logger
from mainspring.worker.execution.attempt import Attempt, HiddenStream, LogSink, NoteProgress, OpenLog
from mainspring.worker.execution.attempt_usage import AttemptUsage
from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.executors.process.warm.frames import (
    Begin,
    Ended,
    Halt,
    Hello,
    InvalidFrame,
    ProgressFrame,
    ReadyFrame,
    Unready,
    framed,
    words,
)
from mainspring.worker.executors.process.warm.run_environment import resident_bytes
from mainspring.worker.processes.caps import NO_CAPS, Caps
from mainspring.worker.processes.command import Command, SpawnOrder
from mainspring.worker.processes.watchdog_client import WatchdogClient

_CHUNK = 64 * 1024
_TAIL = 2 * 1024
# The capacity of a pipe, in chunks: at most this much output can be left when a run ends.
_PIPE_CHUNKS = 32
_LOADING = 60.0
_HINT = "Child processes start with a clean environment; set MAINSPRING_PASS_ENV=A,B on the worker to pass variables."

log = get_logger("process")


class Unfit(Exception):
    """A child could not be started, or could not load the application."""


class ChildOrigin(msgspec.Struct, frozen=True):
    """What is needed to start a child process of a worker."""

    watchdog: WatchdogClient
    app: str
    environ: Mapping[str, str]
    hello: Hello
    folders: WorkFolders
    note_progress: NoteProgress | None = None
    open_log: OpenLog | None = None
    clock: LoopClock = SYSTEM_CLOCK
    stop_seconds: float = 0.0  # that a dismissed child has for its stop hooks; 0: the application has none
    caps: Caps = NO_CAPS


async def start_child(origin: ChildOrigin) -> WarmChild:
    """Returns when the application is loaded; raises Unfit with the reason if that fails."""
    try:
        child = await _spawned(origin)
    except OSError as error:
        raise Unfit(f"a child process could not be started: {error}") from error
    await child.loaded(origin.hello)
    return child


async def _spawned(origin: ChildOrigin) -> WarmChild:
    ours, theirs = socket.socketpair()
    with theirs, ExitStack() as undo:
        undo.callback(ours.close)
        output, output_in = os.pipe()
        undo.callback(os.close, output)
        try:
            command = await origin.watchdog.spawn(_order(origin), output=output_in, channel=theirs.fileno())
        finally:
            os.close(output_in)
        undo.pop_all()
    ours.setblocking(False)
    child = WarmChild(command, ours.fileno(), output, origin)
    await asyncio.get_running_loop().create_unix_connection(lambda: child, sock=ours)
    return child


def _order(origin: ChildOrigin) -> SpawnOrder:
    """PYTHONPATH is the sys.path of the worker, so that the child finds the same modules. The child removes it at
    once."""
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    argv = [sys.executable, "-P", "-m", "mainspring.worker.executors.process.warm", origin.app]
    caps = origin.caps.between_runs()
    return SpawnOrder(argv, {**origin.environ, "PYTHONPATH": path}, str(Path.cwd()), caps=caps)


class WarmChild(asyncio.Protocol):
    """runs: how many it was given. memory: what it used before the first run. cpu: the CPU seconds that it and its
    processes had used when the last run ended. on_lost: called when it is gone; its exit
    code is known after `kill_and_wait`. unread: it was gone before it had read its run. nonsense: an invalid message;
    a task wrote to the channel."""

    def __init__(self, command: Command, channel: int, output: int, origin: ChildOrigin) -> None:
        self.command = command
        self.runs = 0
        self.memory = 0
        self.cpu = 0.0
        self.lost = False
        self.unread = False
        self.nonsense: str | None = None
        self.on_lost: Callable[[WarmChild], None] | None = None
        self._origin = origin
        self._channel = channel
        self._output = output
        self._words = words()
        self._transport: asyncio.WriteTransport | None = None
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[ReadyFrame | Unready | None] = self._loop.create_future()
        self._attempt: Attempt | None = None
        self._ended: asyncio.Future[Ended | None] | None = None
        self._pausing: asyncio.Task[None] | None = None
        self._tail = b""
        self._hidden: HiddenStream | None = None
        os.set_blocking(output, False)
        self._loop.add_reader(output, self._read)

    @property
    def folder(self) -> Path:
        """The working folder of its runs."""
        return self._origin.folders.root / f"child-{self.command.pid}"

    @property
    def tail(self) -> str:
        """The end of its output in this run."""
        return self._tail.decode("utf-8", "replace")

    def growth(self) -> int:
        """How much more memory it uses than after it had loaded the application."""
        try:
            return resident_bytes(self.command.pid) - self.memory
        except OSError:  # it is gone
            return 0

    async def loaded(self, hello: Hello) -> None:
        self._send(framed(hello))
        try:
            async with self._origin.clock.timeout(_LOADING):
                answer = await self._ready
        except TimeoutError:
            answer = Unready(f"the application was not loaded within {_LOADING:.0f} s")
        except asyncio.CancelledError:
            self.command.kill()
            raise
        if isinstance(answer, ReadyFrame):
            self.memory, self.cpu = answer.memory, answer.cpu
            self.command.spared = answer.memory  # the warm interpreter does not count
            return
        await self.kill_and_wait()
        if answer is None:
            raise Unfit(f"a child process ended while it loaded the application: {in_words(self)}")
        raise Unfit(f"a child process cannot load the application: {answer.error}\n{_HINT}")

    def begin(self, begin: Begin, attempt: Attempt) -> asyncio.Future[Ended | None]:
        """Start a run in the child. The future gives its end, or None if the child was lost meanwhile."""
        self.runs += 1
        self._tail = b""
        self._attempt = attempt
        self._hidden = None if attempt.redactor is None else attempt.redactor.stream()
        if self._pausing is not None:
            self._pausing.cancel()
            self._read_on()
        self._ended = self._loop.create_future()
        self.unread = not self._send(framed(begin))
        if self.lost:
            self._ended.set_result(None)
        return self._ended

    def count(self, used: AttemptUsage, ended: Ended | None) -> None:
        """The run has ended, or the child is gone: say what the run has used."""
        used.request_sample = self.command.on_sample = None
        if ended is not None:
            used.ended(ended.cpu, ended.peak)
            self.cpu = ended.cpu
        elif self.command.usage is not None:
            used.ended(self.command.usage.cpu_seconds, self.command.usage.peak_bytes)

    def halt(self, run_id: str) -> None:
        """Ask the run to end. It is no error if it has ended."""
        self._send(framed(Halt(run_id)))

    def end_run(self) -> None:
        """Read the rest of the output of the run. It was all written before the run ended."""
        self._drain()
        self._attempt = self._ended = None

    async def kill_and_wait(self) -> None:
        """Kill it and all processes that its run has started, wait until they are gone, and remove its folder."""
        await self.command.kill_and_wait()
        self._close()
        if self.runs:
            await self._origin.folders.remove(self.folder)

    async def dismiss(self) -> None:
        """End a child that has no run. It runs its stop hooks first, if there are any."""
        if self._origin.stop_seconds and self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()
            with suppress(TimeoutError):
                async with self._origin.clock.timeout(self._origin.stop_seconds):
                    await self.command.exited.wait()
        await self.kill_and_wait()

    def close(self) -> None:
        """For the end of the worker: the watchdog ends the processes."""
        self.command.kill()
        self._close()

    # -- asyncio.Protocol: the channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are not declared to be of the kind

    def data_received(self, data: bytes) -> None:
        if self.nonsense is not None:
            return
        try:
            heard = self._words.feed(data)
        except InvalidFrame as error:
            self.nonsense = str(error)
            self.command.kill()
            return
        for word in heard:
            match word:
                case ProgressFrame(fraction, message):
                    if self._attempt is not None and self._origin.note_progress is not None:
                        self._origin.note_progress(self._attempt, fraction, message)
                case Ended():
                    if self._ended is not None and not self._ended.done():
                        self._ended.set_result(word)
                case ReadyFrame() | Unready():
                    if not self._ready.done():
                        self._ready.set_result(word)

    def connection_lost(self, error: Exception | None) -> None:
        """The kernel closes the channel when the last process that has it is gone. It reports "connection reset"
        instead of "end of file" if something was not read. The last message is the run, unless the run was asked to
        stop. So the child need not acknowledge what it has read."""
        self.lost = True
        # Any other error comes from this side, and does not say what the child has read.
        self.unread = self.unread or isinstance(error, ConnectionError)
        for future in (self._ready, self._ended):
            if future is not None and not future.done():
                future.set_result(None)
        if self.on_lost is not None:
            self.on_lost(self)

    def _send(self, data: bytes) -> bool:
        """False if the child is gone. Writes directly where possible, because the transport would not report that."""
        if self._transport is None or self._transport.is_closing():
            return False
        sent = 0
        if not self._transport.get_write_buffer_size():
            try:
                sent = os.write(self._channel, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return False  # the next read reports that it is gone
        if sent < len(data):
            self._transport.write(data[sent:])
        return True

    # -- its output

    def _read(self) -> bool:
        """Read one chunk; False if there is none."""
        if self._output < 0:
            return False
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._stop_reading()
            return False
        self._tail = (self._tail + (data if self._hidden is None else self._hidden.feed(data)))[-_TAIL:]
        if self._attempt is None:
            log.debug("output outside of a run", pid=self.command.pid, bytes=len(data))
        elif self._origin.open_log is not None:
            sink = self._origin.open_log(self._attempt)
            sink.write(data)
            if sink.full and self._ended is not None and not self._ended.done():
                self._loop.remove_reader(self._output)
                self._pausing = self._loop.create_task(self._go_on(sink))
        return True

    async def _go_on(self, sink: LogSink) -> None:
        """Meanwhile the child waits, because its pipe is full."""
        await sink.room()
        self._read_on()

    def _read_on(self) -> None:
        self._pausing = None
        if self._output >= 0:
            self._loop.add_reader(self._output, self._read)

    def _stop_reading(self) -> None:
        output, self._output = self._output, -1
        if output >= 0:
            self._loop.remove_reader(output)
            os.close(output)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._drain()
        self._stop_reading()

    def _drain(self) -> None:
        for _ in range(_PIPE_CHUNKS):
            if not self._read():
                break


def in_words(child: WarmChild) -> str:
    """How a lost child process ended."""
    code = child.command.exit_code
    words = f"exit code {code}"
    if code is not None and code < 0:
        words = f"signal {-code}"
        with suppress(ValueError):
            words = signal.Signals(-code).name
    tail = child.tail.strip()
    return f"{words}: {tail}" if tail else words
