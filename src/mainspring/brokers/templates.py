"""Templates: values of a file in which {$from: value.order.id} stands for a part of a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.domain.errors import InvalidInput

ROOTS = ("value", "key", "headers", "id", "topic", "partition", "offset", "event")
_DEEPEST = 20
_MISSING = object()


class Missing(Exception):
    """The message does not have what a template refers to."""


def check_template(value: Any, field: str, depth: int = 0) -> None:
    """Raises InvalidInput if a reference is not one."""
    if depth > _DEEPEST:
        raise InvalidInput(f"{field}: it is nested too deeply", field=field)
    if isinstance(value, dict):
        if "$from" in value:
            path = value["$from"]
            if not isinstance(path, str) or path.split(".")[0] not in ROOTS or "" in path.split("."):
                raise InvalidInput(
                    f"{field}: {path!r} is no part of a message", field=field,
                    expected=f"such as value.order.id; it begins with one of {', '.join(ROOTS)}",
                )  # fmt: skip
            if unknown := value.keys() - {"$from", "default"}:
                raise InvalidInput(f"{field}: beside $from there is {min(unknown)!r}", field=field, expected="default")
            return
        for name, one in value.items():
            check_template(one, f"{field}.{name}", depth + 1)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            check_template(one, f"{field}[{index}]", depth + 1)


def fill(template: Any, parts: Mapping[str, Any]) -> Any:
    """The template with the parts of a message. Raises Missing."""
    if isinstance(template, dict):
        if "$from" not in template:
            return {name: fill(one, parts) for name, one in template.items()}
        found = _at(template["$from"], parts)
        if found is not _MISSING:
            return found
        if "default" in template:
            return template["default"]
        raise Missing(f"the message has no {template['$from']}")
    if isinstance(template, list):
        return [fill(one, parts) for one in template]
    return template


def _at(path: str, parts: Mapping[str, Any]) -> Any:
    found: Any = parts
    for name in path.split("."):
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < 9 and int(name) < len(found):
            found = found[int(name)]
        else:
            return _MISSING
    return found
