"""Messages about tasks: what the workers offer, and what each takes."""

from __future__ import annotations

from typing import Any

import msgspec


class TaskView(msgspec.Struct):
    """A task that live workers offer. payload_schema: the JSON Schema that payloads are checked by; None: anything."""

    task: str
    queues: list[str]
    workers: int
    payload_schema: dict[str, Any] | None = None


class TaskList(msgspec.Struct):
    tasks: list[TaskView]
