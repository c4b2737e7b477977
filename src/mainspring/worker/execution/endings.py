"""Turns the result or the exception of a Python task into an `Ending`."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from mainspring.domain.durations import format_duration
from mainspring.kernel.config import MAX_RESULT_BYTES
from mainspring.sdk.errors import BadPayload, GiveUp, Retry, Snooze, in_seconds, snooze_in
from mainspring.wire.execution import Cause
from mainspring.worker.execution.attempt import SUCCEEDED, AttemptEnding, error_text, failed

_FRAMES = 8
_HERE = str(Path(__file__).parents[1]) + "/"
_encode = msgspec.json.Encoder().encode


def ending_of_call(call: Callable[[], Any]) -> AttemptEnding:
    """Call a plain `def`, and return how it ended."""
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - a task may raise anything, sys.exit() included
        return ending_of_error(error)
    if inspect.iscoroutine(result):
        result.close()
        return failed("TypeError: the task returned a coroutine; declare it with async def", retry=False)
    return SUCCEEDED if result is None else ending_of_result(result)


def ending_of_result(result: object) -> AttemptEnding:
    """SUCCESS with the result as JSON. A result that cannot be stored is an error without a retry."""
    try:
        data = _encode(result)
    except Exception as error:  # noqa: BLE001 - the object is user code and may raise anything
        return failed(f"{type(error).__name__}: the result cannot be kept as JSON: {error}", retry=False)
    if len(data) > MAX_RESULT_BYTES:
        return failed(f"the result has {len(data)} bytes, at most {MAX_RESULT_BYTES} are kept", retry=False)
    return AttemptEnding(result=msgspec.Raw(data))


def ending_of_error(error: BaseException) -> AttemptEnding:
    """FAILED with "ValueError: message" and the last frames of the traceback.

    Retry and GiveUp decide about the retry themselves, so they have no cause that a retry rule could match. An error
    whose `__str__` fails is described by its class.
    """
    if (snooze := snooze_in(error)) is not None:
        return snoozed(snooze)
    try:
        return _described(error)
    except Exception as trouble:  # noqa: BLE001 - the error is user code too
        name, why = type(error).__name__, type(trouble).__name__
        return failed(f"{name}, whose message cannot be read: {why}", retry=not isinstance(error, GiveUp))


def snoozed(snooze: Snooze) -> AttemptEnding:
    """The ending of an attempt that asks to come back later. To an older server it is a failure that asks for a
    retry."""
    words = f"snoozed for {format_duration(snooze.seconds)}"
    return AttemptEnding("FAILED", words, retry_after=snooze.seconds, snooze=snooze.seconds)


def _described(error: BaseException) -> AttemptEnding:
    if isinstance(error, BadPayload):
        return failed(error.detail, retry=False)
    if isinstance(error, Retry):
        after = None if error.after is None else in_seconds(error.after)  # user code may have set it to anything
        return failed(_in_words(error, "the task asked to be tried again"), retry_after=after)
    if isinstance(error, GiveUp):
        return failed(_in_words(error, "the task gave up"), retry=False)
    headline = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, NameError) and error.name == "ctx":
        headline += ". The context is a parameter of the task: def task(ctx: Context, ...)"
    frames = "".join(traceback.format_tb(_users_frames(error.__traceback__), limit=-_FRAMES))
    return failed(f"{headline}\n{frames}".rstrip(), cause=cause_of(error))


def cause_of(error: BaseException) -> Cause:
    """The class of the error and its bases, each by its short name and, unless built in, also by its full name."""
    names: list[str] = []
    for kind in type(error).__mro__:
        if kind in (object, BaseException):
            continue
        names.append(kind.__name__)
        if kind.__module__ != "builtins":
            names.append(f"{kind.__module__}.{kind.__qualname__}")
    return Cause(errors=list(dict.fromkeys(map(error_text, names))))


def _in_words(error: Retry | GiveUp, otherwise: str) -> str:
    return f"{type(error).__name__}: {str(error) or otherwise}"


def _users_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without the worker's frames at its top."""
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
        frames = frames.tb_next
    return frames
