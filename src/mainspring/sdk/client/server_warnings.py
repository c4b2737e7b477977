"""Warnings in the responses of a server, such as: no worker offers the task of this job.

They are logged and not raised: what the response is about is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Protocol, TypeVar

from msgspec import UNSET, UnsetType

from mainspring.sdk.client.core import ServerAnswer, json_of

log = logging.getLogger("mainspring")

_SILENT_FOR = 60.0  # seconds in which a text is not logged again
_MOST_TEXTS = 1000
_logged: dict[str, float] = {}


class _Answer(Protocol):
    @property
    def warnings(self) -> Sequence[str] | UnsetType: ...


A = TypeVar("A", bound=_Answer)


def warning_of(shape: type[A]) -> Callable[[ServerAnswer], A]:
    """A reader as `json_of`, which also logs the warnings in the response."""
    read_json = json_of(shape)

    def read(answer: ServerAnswer) -> A:
        found = read_json(answer)
        if found.warnings is not UNSET:
            log_warnings(found.warnings)
        return found

    return read


def log_warnings(texts: Iterable[str]) -> None:
    """Log each text, at most once a minute: a loop may submit many jobs."""
    now = monotonic()
    for text in texts:
        if now - _logged.get(text, -_SILENT_FOR) >= _SILENT_FOR:
            if len(_logged) >= _MOST_TEXTS:
                _logged.clear()
            _logged[text] = now
            log.warning("%s", text)
