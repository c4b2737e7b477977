"""The option of a shell task on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.kinds.registry import KindOptions, Option


def _call(given: Mapping[str, Any]) -> Any:
    return given["command"]


OPTIONS = KindOptions(
    of_a_job=(Option("command", "--command", "CMD", "Run a shell command instead of a task."),), call=_call
)
