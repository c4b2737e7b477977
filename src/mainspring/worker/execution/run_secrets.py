"""The secrets of a run, put in the place of their references. Only executors do this, when the run starts."""

from __future__ import annotations

from typing import Any

from mainspring.wire.exchange import RunOrder
from mainspring.wire.secrets import REFERENCE, SecretRef, is_reference


class MissingSecret(ValueError):
    """A reference to a secret that the run does not have."""


def value_of(order: RunOrder, name: str, where: str) -> str:
    """Raises MissingSecret."""
    value = None if order.secrets is None else order.secrets.values.get(name)
    if value is None:
        raise MissingSecret(f"{where}: the run has no secret {name!r}; only the definition of its job can name one")
    return value


def variables_of(order: RunOrder) -> dict[str, str]:
    """The variables that the job sets. Raises MissingSecret."""
    env = None if order.setup is None else order.setup.env
    return {
        name: value_of(order, value.name, f"env.{name}") if isinstance(value, SecretRef) else value
        for name, value in (env or {}).items()
    }


def filled(order: RunOrder, value: Any, where: str) -> Any:
    """Decoded JSON with values in the place of references. Raises MissingSecret."""
    if isinstance(value, list):
        return [filled(order, item, f"{where}[{place}]") for place, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if is_reference(value):
        return value_of(order, str(value[REFERENCE]), where)
    return {name: filled(order, item, f"{where}.{name}") for name, item in value.items()}
