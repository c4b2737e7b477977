"""What a run needs from a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class WorkerNeeds(msgspec.Struct, frozen=True, array_like=True):
    """The worker subscribes to the queue, offers the task and has the labels, which are JSON with sorted keys."""

    queue: str
    task: str
    labels: str = ""

    @property
    def required_labels(self) -> dict[str, str] | None:
        return labels_in(self.labels)


class _Definition(Protocol):
    """A job or a step."""

    @property
    def queue(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def required_labels(self) -> Mapping[str, str] | None: ...


def needs_of(definition: _Definition) -> WorkerNeeds:
    return WorkerNeeds(definition.queue, definition.task, labels_text(definition.required_labels))


def labels_text(required: Mapping[str, str] | None) -> str:
    return "" if required is None else msgspec.json.encode(required, order="sorted").decode()


def labels_in(text: str) -> dict[str, str] | None:
    return msgspec.json.decode(text, type=dict[str, str]) if text else None
