"""How much a test does: little in `make test`, much in `make test-long`. See the marks in pyproject.toml."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

long = pytest.mark.long


def sizes(variable: str, small: int, large: int) -> list[Any]:
    """The values of a parameter: the small size, and the large one with the mark `long`. An environment variable sets
    another size for both."""
    given = os.environ.get(variable)
    if given:
        return [int(given), pytest.param(int(given), marks=long)]
    return [small, pytest.param(large, marks=long)]


def chosen(names: Iterable[str], always: Collection[str], slow: Collection[str] = ()) -> list[Any]:
    """The values of a parameter: those that `make test` has `always`, those with the mark `slow`, and the others with
    the mark `long`."""
    known = list(names)
    assert {*always, *slow} <= set(known)
    marks = {name: pytest.mark.slow if name in slow else pytest.mark.long for name in known}
    return [name if name in always else pytest.param(name, marks=marks[name]) for name in known]
