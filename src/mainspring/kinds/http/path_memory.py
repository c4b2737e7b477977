"""JSONPaths of http tasks: whether one can be compiled. A long one takes milliseconds, and thousands of jobs have the
same, so the result is remembered."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import cast

import msgspec

from mainspring.kinds.http.call import HttpCall, HttpCallIn
from mainspring.wire.jobs import JobPatch, JobRequest

LONGEST_PATH = 1000
_MOST_REMEMBERED = 4000  # a few MB

_problems: dict[str, str | None] = {}
_turn = threading.Lock()
_read_call = msgspec.json.Decoder(HttpCallIn).decode


def path_problem(path: str) -> str | None:
    """Why it is not a JSONPath; None if it is one, or if it is too long to be checked."""
    if len(path) > LONGEST_PATH:
        return None
    try:
        return _problems[path]
    except KeyError:
        return _compiled(path)


def compile_all(paths: Iterable[str]) -> None:
    """Remember what `path_problem` says about these. For a thread."""
    for path in paths:
        path_problem(path)


def uncompiled_path(request: JobRequest | JobPatch) -> str | None:
    """The path of an http job if nothing is remembered about it."""
    call = _call(request)
    path = None if call is None or call.success is None else call.success.json
    return None if path is None or path in _problems or len(path) > LONGEST_PATH else path


def _call(request: JobRequest | JobPatch) -> HttpCall | None:
    if given := getattr(request, "http", None):
        return cast(HttpCall, given)
    try:
        return _read_call(request.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # intake says what is wrong with it


def _compiled(path: str) -> str | None:
    from jsonpath_rfc9535 import JSONPathError, compile  # 30 ms to import, for those who use it

    problem = None
    try:
        compile(path)
    except (JSONPathError, RecursionError) as error:
        problem = str(error).splitlines()[0]
    with _turn:
        if len(_problems) >= _MOST_REMEMBERED:
            _problems.pop(next(iter(_problems)))
        _problems[path] = problem
    return problem
