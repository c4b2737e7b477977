"""Filters of lists that have a form of their own: several words, labels, and ids of workers."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from mainspring.domain.errors import InvalidInput
from mainspring.domain.payload_keys import MOST_KEYS, is_path
from mainspring.domain.texts import shown
from mainspring.kernel.ids import parse_uuid

PAYLOAD_PARAMETER = "payload."


def several(values: list[str] | None, field: str = "status") -> list[str]:
    """`?status=a&status=b` and `?status=a,b` mean the same."""
    found = [part.strip() for value in values or [] for part in value.split(",")]
    if "" in found:
        raise InvalidInput(f"{field} is empty", code="invalid_parameter", field=field, hint="leave it out, or name one")
    return found


def label_filter(text: str | None) -> tuple[str, str] | None:
    """`label=team:bi` and `label=team=bi` mean the same."""
    if text is None:
        return None
    for separator in (":", "="):
        name, found, value = text.partition(separator)
        if found and name:
            return name, value
    raise InvalidInput("a label filter needs a name and a value", field="label", expected="label=team:bi")


def payload_filter(parameters: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The parameters `payload.account=42` among all: the path and the value of each."""
    found = []
    for name, value in parameters:
        if name.startswith(PAYLOAD_PARAMETER):
            path = name.removeprefix(PAYLOAD_PARAMETER)
            if not is_path(path):
                raise InvalidInput(
                    f"{shown(name)} is not the path of a value in the payload", code="invalid_parameter",
                    field=name[:100], expected="such as payload.account",
                )  # fmt: skip
            found.append((path, value))
    if len(found) > MOST_KEYS:
        raise InvalidInput(
            f"{len(found)} values of the payload are given", code="invalid_parameter", field=found[0][0],
            expected=f"at most {MOST_KEYS}",
        )  # fmt: skip
    return tuple(found)


def worker_filter(text: str | None) -> UUID | None:
    """Runs know the id of their worker, not its name."""
    if text is None:
        return None
    worker_id = parse_uuid(text)
    if worker_id is None:
        raise InvalidInput(
            "a worker filter needs the id of a worker", field="worker", expected="a worker_id of GET /v1/workers"
        )
    return worker_id
