"""`mainspring tasks`"""

from __future__ import annotations

from typing import Any

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import Column, show_json, show_rows

EXAMPLES = ("mainspring tasks",)
_COLUMNS = (Column("TASK"), Column("TAKES"), Column("QUEUES"), Column("WORKERS", right=True))


def command(
    as_json: JsonFlag = False, url: UrlOption = None, token_file: TokenFileOption = None, data: DataOption = None
) -> None:
    """List tasks that workers offer, and the parameters they take."""
    with connect(url, token_file, data) as client:
        answer = client.tasks()
    if as_json:
        show_json(answer)
        return
    rows = [
        (task.task, _parameters(task.payload_schema), ", ".join(task.queues), str(task.workers))
        for task in answer.tasks
    ]
    show_rows(_COLUMNS, rows, nothing="no tasks; start a worker with: mainspring worker --app module:app")


def _parameters(schema: dict[str, Any] | None) -> str:
    """Names and types; those in brackets may be left out."""
    if schema is None:
        return "anything"
    required = schema.get("required", ())
    shown = []
    for name, parameter in schema.get("properties", {}).items():
        text = f"{name}: {_kind(parameter)}"
        shown.append(text if name in required else f"[{text}]")
    return ", ".join(shown) or "nothing"


def _kind(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    if "anyOf" in schema:
        return " or ".join(_kind(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    kind = schema.get("format") or schema.get("type") or str(schema.get("$ref", "any")).rpartition("/")[2]
    return str(kind)
