"""What a worker declares of its tasks when it registers: the schemas of their payloads, and their options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from mainspring.sdk.tasks.task import Task
from mainspring.wire.tasks import OPTIONS_KEYWORD


def declared(tasks: Iterable[Task[Any, Any]]) -> dict[str, msgspec.Raw]:
    """The schemas and options that a worker declares when it registers. Tasks without any are left out."""
    found = {task.name: _declaration(task) for task in tasks}
    return {name: msgspec.Raw(msgspec.json.encode(schema)) for name, schema in found.items() if schema}


def _declaration(task: Task[Any, Any]) -> dict[str, Any]:
    schema = task.payload_schema or {}
    return schema if task.declared_options is None else {**schema, OPTIONS_KEYWORD: task.declared_options}
