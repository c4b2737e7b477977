"""`mainspring task`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mainspring.cli.listing import Listing, ListOptions, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import TOO_LARGE
from mainspring.cli.table import Column
from mainspring.wire.fields import DURATION, task_options

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.tasks import DeclaredOptions

noun = Noun("task", "Tasks: what the applications of workers offer.")
_COLUMNS = (
    Column("TASK", least=16),
    Column("TAKES", rank=2, least=16),
    Column("OPTIONS", rank=3, least=16),
    Column("QUEUES", rank=4, least=8),
    Column("WORKERS", rank=1, right=True),
)
_DURATIONS = (
    *(field.name for field in task_options() if field.kind is DURATION), "retry.base", "retry.cap", "limits.cpu",
)  # fmt: skip
_SIZES = ("limits.memory", "limits.output", "limits.disk")


@noun.verb("list", "mainspring task list", "mainspring task list --json")
@with_list_options
def list_(options: ListOptions) -> None:
    """List the tasks that workers offer, with their parameters and the default options of their jobs."""
    show_list(options, _read)


def _read(client: Client) -> Listing:
    answer = client.tasks()
    rows = [
        (
            task.task,
            TOO_LARGE if task.left_out else _parameters(task.payload_schema),
            _options(task.options),
            ", ".join(task.queues),
            str(task.workers),
        )
        for task in answer.tasks
    ]
    return Listing(
        answer,
        _COLUMNS,
        lambda _: rows,
        nothing="no tasks; start a worker with: mainspring worker --app module:app",
        notes=["there are more tasks than a list shows"] if answer.more else [],
    )


def _parameters(schema: dict[str, Any] | None) -> str:
    """Names and types. Optional parameters are in brackets."""
    if schema is None:
        return "anything"
    required = schema.get("required", ())
    shown = []
    for name, parameter in schema.get("properties", {}).items():
        text = f"{name}: {_kind(parameter)}"
        shown.append(text if name in required else f"[{text}]")
    return ", ".join(shown) or "nothing"


def _options(options: DeclaredOptions | None) -> str:
    """Paths and values: queue=heavy, retry.max_attempts=5."""
    import msgspec

    return ", ".join(_named(msgspec.to_builtins(options) or {}, ""))


def _named(values: dict[str, Any], path: str) -> Iterator[str]:
    import msgspec

    from mainspring.domain.durations import format_duration
    from mainspring.domain.sizes import format_size

    for name, value in values.items():
        field = f"{path}{name}"
        if isinstance(value, dict):
            yield from _named(value, f"{field}.")
        elif field in _DURATIONS and isinstance(value, int | float):
            yield f"{field}={format_duration(value)}"
        elif field in _SIZES and isinstance(value, int):
            yield f"{field}={format_size(value)}"
        else:
            yield f"{field}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"


def _kind(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    if "anyOf" in schema:
        return " or ".join(_kind(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    kind = schema.get("format") or schema.get("type") or str(schema.get("$ref", "any")).rpartition("/")[2]
    return str(kind)
