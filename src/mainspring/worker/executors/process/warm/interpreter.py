"""The main loop of a warm child: read a run, run it, report how it ended.

To end a run, the worker sends a message on the channel, and the kernel announces it by SIGIO, also in the middle of a
task. So a request can never hit the next run, as a bare signal could. An async task is cancelled. In a plain function
`Halted` is raised, so that its `finally` blocks run. A task that does not react is killed by the worker.
"""

from __future__ import annotations

import asyncio
import contextvars
import fcntl
import inspect
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from mainspring.domain.sizes import format_size
from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.tasks.context import Context
from mainspring.sdk.tasks.task import Task
from mainspring.worker.execution.attempt import SUCCEEDED, AttemptEnding, failed
from mainspring.worker.execution.endings import ending_of_call, ending_of_error, ending_of_result
from mainspring.worker.execution.interruption import Halted
from mainspring.worker.executors.process.warm.child_loop import ChildLoop
from mainspring.worker.executors.process.warm.cleanup import LeftoverCheck
from mainspring.worker.executors.process.warm.frames import (
    Begin,
    Ended,
    Frames,
    Halt,
    Order,
    ProgressFrame,
    Word,
    framed,
)
from mainspring.worker.executors.process.warm.own_use import OwnUse
from mainspring.worker.executors.process.warm.run_environment import RunEnvironment

_CHUNK = 256 * 1024
_EXIT_FORKED = 70
_OURS = (signal.SIGIO, signal.SIGTERM, signal.SIGINT)
_MOST_TEXT = 1000
# How long a thread may take to set the cancel flag. It waits only for code that holds the lock of the flag.
_FLAG_SECONDS = 0.05


class Interpreter:
    def __init__(
        self, app: Mainspring, channel: socket.socket, heard: Frames[Order], loop: ChildLoop | None = None
    ) -> None:
        self._app = app
        self._channel = channel
        self._heard = heard
        self._waiting: list[Order] = []
        self._pid = os.getpid()
        self._saying = threading.Lock()
        self._run_id: str | None = None
        self._halt: Callable[[], None] | None = None
        self._held_back = False
        self._sending = False
        self._loop = loop or ChildLoop()
        self._context = contextvars.copy_context()
        self._listen()
        self._run_environment = RunEnvironment()
        self._leftover_check = LeftoverCheck()
        self._own_use = OwnUse()

    def serve(self) -> None:
        """Serve until the worker is gone."""
        while (order := self._next_order()) is not None:
            if isinstance(order, Begin):
                self._say(self._run(order))

    def say(self, word: Word) -> None:
        """Send a message of the running task, from any of its threads. `Halted` does not interrupt it within a
        frame."""
        if threading.current_thread() is not threading.main_thread():
            self._say(word)
            return
        self._sending = True
        try:
            self._say(word)
        finally:
            self._sending = False
        if self._held_back:
            self._held_back = False
            raise Halted

    def _say(self, word: Word) -> None:
        with self._saying:
            self._channel.sendall(framed(word))

    # -- orders

    def _listen(self) -> None:
        number = self._channel.fileno()
        signal.signal(signal.SIGIO, self._on_signal)
        # The worker decides when its children end, even if a service manager signals every process of a service.
        signal.signal(signal.SIGTERM, _ignore)
        signal.signal(signal.SIGINT, _ignore)
        _forget_signals_in_forks()
        fcntl.fcntl(number, fcntl.F_SETOWN, self._pid)
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)

    def _next_order(self) -> Order | None:
        while not self._waiting:
            data = self._channel.recv(_CHUNK)
            if not data:
                return None
            self._waiting += self._heard.feed(data)
        return self._waiting.pop(0)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._halt is not None:
            self._check_for_halt()

    def _check_for_halt(self) -> None:
        try:
            while data := self._channel.recv(_CHUNK, socket.MSG_DONTWAIT):
                self._waiting += self._heard.feed(data)
        except BlockingIOError:
            pass
        if self._halt is not None and any(order == Halt(self._run_id or "") for order in self._waiting):
            halt, self._halt = self._halt, None
            halt()

    # -- one run

    def _run(self, begin: Begin) -> Ended:
        task = self._app.tasks.get(begin.task)
        if task is None:
            return _ended(failed(f"this worker does not offer the task {begin.task}"), None, *self._own_use.of_run())
        try:
            self._run_environment.enter(begin)
            self._run_id = begin.run_id
            ending = self._ending_of(task, begin)
        except OSError as error:
            ending = failed(f"the environment of the run could not be set up: {error}")
        finally:
            self._run_id = None
        if os.getpid() != self._pid:  # the task forked, and this is the child process
            os._exit(_EXIT_FORKED)
        unfit = self._clean_up(ending)
        return _ended(ending, unfit, *self._own_use.of_run())

    def _ending_of(self, task: Task[Any, Any], begin: Begin) -> AttemptEnding:
        context = self._context_of(begin) if task.wants_context else None
        try:
            call = task.bind_json(begin.payload, context)
        except BaseException as error:  # noqa: BLE001 - annotations are user code too
            return ending_of_error(error)
        if task.is_async:
            ending = self._in_the_loop(call, context)
        else:
            ending = self._in_the_main_thread(call, context)
        limits = begin.limits
        if limits is not None and limits.memory is not None and "MemoryError" in _errors(ending):
            return failed(f"memory limit of {format_size(limits.memory)}: {ending.error}", cause=ending.cause)
        return ending

    def _context_of(self, begin: Begin) -> Context:
        return Context(
            job_id=begin.job_id,
            run_id=begin.run_id,
            attempt=begin.attempt,
            scheduled_for=begin.scheduled_for,
            task=begin.task,
            name=begin.name,
            max_attempts=begin.max_attempts,
            snoozes=begin.snoozes,
            _at_most_once=begin.at_most_once,
            _key=begin.idempotency_key,
            generation=begin.generation,
            _secrets=begin.secrets or {},
            _fence=begin.fence,
            _channel=_Channel(self),
        )

    def _in_the_main_thread(self, call: Callable[[], Any], context: Context | None) -> AttemptEnding:
        try:
            try:
                self._halt = partial(self._raise_halted, context)
                self._check_for_halt()  # it may have arrived together with the run
                ending = self._context.copy().run(ending_of_call, call)
            finally:
                self._halt, self._held_back = None, False
        except Halted as error:
            ending = ending_of_error(error)
        for clean_up in context.take_cleanups() if context is not None else ():
            try:
                if asyncio.iscoroutine(left := clean_up()):
                    left.close()
                    _print_to_log("a clean-up is a coroutine function, which only an async task can have\n")
            except BaseException as error:  # noqa: BLE001 - a clean-up may raise anything; it changes nothing
                _print_to_log(_clean_up_failed(error))
        return ending

    def _raise_halted(self, context: Context | None) -> None:
        if context is not None:
            # In a thread, because the interrupted code may hold the lock that this needs.
            flagging = threading.Thread(target=context.cancel, daemon=True)
            with suppress(RuntimeError):  # no thread can be started
                flagging.start()
                flagging.join(_FLAG_SECONDS)
        if self._sending:
            self._held_back = True
        else:
            raise Halted

    def _in_the_loop(self, call: Callable[[], Coroutine[Any, Any, Any]], context: Context | None) -> AttemptEnding:
        loop = self._loop.get()
        running = loop.create_task(_awaited(call, context), context=self._context.copy())

        def cancel() -> None:
            if context is not None:
                context.cancel()
            running.cancel()

        try:
            self._halt = lambda: _on_loop(loop, cancel)
            self._check_for_halt()
            ending = loop.run_until_complete(running)
        except BaseException as error:  # noqa: BLE001 - sys.exit() and similar leave the loop too
            ending = ending_of_error(error)
        finally:
            self._halt = None
        self._loop.clean(threads_left=bool(self._leftover_check.threads()))
        return ending

    # -- after the run

    def _clean_up(self, ending: AttemptEnding) -> str | None:
        """Restore the environment. Returns why this interpreter must not be used again, or None."""
        try:
            self._run_environment.leave()
            sys.stdout.flush()
            sys.stderr.flush()
            unfit = self._leftover_check.found()
        except (OSError, ValueError, AttributeError) as error:  # the task closed or replaced streams
            return f"the environment could not be restored: {error}"
        return "it was out of memory" if unfit is None and "MemoryError" in _errors(ending) else unfit


class _Channel:
    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def progress(self, fraction: float | None, message: str | None) -> None:
        # No longer than the server accepts, and without lone surrogates.
        short = None if message is None else message[:_MOST_TEXT].encode("utf-8", "replace").decode()
        self._interpreter.say(ProgressFrame(fraction, short))

    def log(self, text: str) -> None:
        """Write to stdout, so that it appears in order between the lines of `print`."""
        sys.stdout.write(text)
        sys.stdout.flush()


async def _awaited(call: Callable[[], Coroutine[Any, Any, Any]], context: Context | None) -> AttemptEnding:
    try:
        result = await call()
        ending = SUCCEEDED if result is None else ending_of_result(result)
    except BaseException as error:  # noqa: BLE001 - a task may raise anything, sys.exit() included
        ending = ending_of_error(error)
    for clean_up in context.take_cleanups() if context is not None else ():
        try:
            if inspect.isawaitable(left := clean_up()):
                await left
        except BaseException as error:  # noqa: BLE001 - a clean-up may raise anything; it changes nothing
            _print_to_log(_clean_up_failed(error))
    return ending


def _clean_up_failed(error: BaseException) -> str:
    return "a clean-up failed: " + "".join(traceback.format_exception(error))


def _print_to_log(text: str) -> None:
    """Write to the log of the run, even if the task has replaced sys.stderr."""
    if sys.__stderr__ is not None:
        sys.__stderr__.write(text)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """For signal handlers: wakes the loop if it sleeps."""
    loop.call_soon_threadsafe(call)


def _ended(ending: AttemptEnding, unfit: str | None, cpu: float, peak: int) -> Ended:
    result = None if ending.result is None else bytes(memoryview(ending.result))
    return Ended(
        ending.status,
        ending.error,
        ending.retry,
        ending.retry_after,
        ending.cause,
        result,
        unfit,
        ending.snooze,
        cpu,
        peak,
    )


def _errors(ending: AttemptEnding) -> list[str]:
    return ending.cause.errors if ending.cause is not None else []


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Used instead of SIG_IGN, which programs started by the task would inherit."""


def _forget_signals_in_forks() -> None:
    """A forked process belongs to the task: `multiprocessing` ends its workers by SIGTERM.

    The signals are blocked during the fork. Otherwise one that arrives before the handlers are reset in the new
    process is lost, and who sent it waits for ever.
    """
    masks = threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def forget() -> None:
        for number in (signal.SIGIO, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=forget)
