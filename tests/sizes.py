"""How much a test does: little in `make test`, much in `make test-long`."""

from __future__ import annotations

import os
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
