"""The functions that an application runs when a worker starts and stops: to open and close a pool, for example."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

Hook = Callable[[], object]
HookT = TypeVar("HookT", bound=Hook)
STOP_SECONDS = 5.0  # that all stop hooks of a process have together
_CANCEL_SECONDS = 0.2  # that a coroutine has to end after it was cancelled


class HookFailed(Exception):
    """A hook raised an error. The message names the hook and the error."""


class HookStuck(HookFailed):
    """A stop hook did not end in time."""


class WorkerHooks:
    """The hooks of an application. Start hooks run in the order of their declaration, stop hooks in the reverse
    order."""

    def __init__(self) -> None:
        self.starts: list[Hook] = []
        self.stops: list[Hook] = []

    async def start(self) -> None:
        """Run the start hooks: coroutine functions on this loop, plain functions in a thread. Raises HookFailed for
        the first one that fails; the rest is not run."""
        import asyncio

        for hook in self.starts:
            try:
                await _call(hook)
            except asyncio.CancelledError as error:
                if _is_asked_to_stop():
                    raise
                raise _failed("start", hook, error) from error
            except Exception as error:
                raise _failed("start", hook, error) from error

    async def stop(self, seconds: float = STOP_SECONDS) -> list[HookFailed]:
        """Run all stop hooks within so many seconds. Returns the errors; no error keeps the next hook from running."""
        import asyncio

        failures: list[HookFailed] = []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        for hook in reversed(self.stops):
            call = asyncio.ensure_future(_call(hook))
            await asyncio.wait({call}, timeout=max(0.0, deadline - loop.time()))
            if not call.done():
                call.cancel()
                await asyncio.wait({call}, timeout=_CANCEL_SECONDS)  # it may ignore that
                failures.append(HookStuck(f"the stop hook {_name(hook)} did not end within {seconds:g} s"))
            elif call.cancelled():
                failures.append(_failed("stop", hook, asyncio.CancelledError()))
            elif (error := call.exception()) is not None:
                failures.append(_failed("stop", hook, error))
        return failures

    def start_steps(self) -> Generator[Any, Any, None]:
        """The start hooks in this thread. Yields what they await. Raises HookFailed as `start` does."""
        for hook in self.starts:
            try:
                if inspect.isawaitable(left := hook()):
                    yield left
            except Exception as error:
                raise _failed("start", hook, error) from error

    def stop_steps(self) -> Generator[Any, Any, list[HookFailed]]:
        """The stop hooks in this thread. Yields what they await, and returns the errors."""
        failures: list[HookFailed] = []
        for hook in reversed(self.stops):
            try:
                if inspect.isawaitable(left := hook()):
                    yield left
            except Exception as error:  # noqa: BLE001 - a hook may raise anything
                failures.append(_failed("stop", hook, error))
        return failures


def checked_hook(hook: HookT) -> HookT:
    """The hook itself. Raises TypeError for what cannot be called without arguments."""
    if not callable(hook):
        raise TypeError(f"{hook!r} is not a function. Write @app.on_worker_start above a function, without brackets.")
    try:
        inspect.signature(hook).bind()
    except TypeError:
        raise TypeError(
            f"the hook {_name(hook)} has parameters, and a worker gives it none. Use app.state to share what it opens."
        ) from None
    if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
        raise TypeError(
            f"the hook {_name(hook)} is a generator. Write one function for the start and one for the stop."
        )
    return hook


async def _call(hook: Hook) -> None:
    left = hook() if inspect.iscoroutinefunction(hook) else await _in_a_thread(hook)
    if inspect.isawaitable(left):
        await left


def _is_asked_to_stop() -> bool:
    """Whether this task is being cancelled. Otherwise a CancelledError comes from the code that it called."""
    import asyncio

    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _in_a_thread(hook: Hook) -> Awaitable[object]:
    """A daemon thread: one that does not end must not keep the process from ending."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()

    def settle(result: object, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        result, raised = None, None
        try:
            result = hook()
        except BaseException as error:  # noqa: BLE001 - passed on to the caller
            # A future takes neither of StopIteration and SystemExit as they are.
            raised = error if isinstance(error, Exception) and not isinstance(error, StopIteration) else None
            raised = raised or RuntimeError(f"{type(error).__name__}: {error}")
        try:
            loop.call_soon_threadsafe(settle, result, raised)
        except RuntimeError:  # the loop is closed: the process ends
            return

    threading.Thread(target=work, name=f"mainspring-hook-{_name(hook)}", daemon=True).start()
    return future


def _failed(which: str, hook: Hook, error: BaseException) -> HookFailed:
    return HookFailed(f"the {which} hook {_name(hook)} failed: {type(error).__name__}: {error}")


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", None) or repr(hook)
