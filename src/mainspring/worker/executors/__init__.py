"""One file per kind of task. A new kind is a file with an `Executor` in it and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.sdk.task import Task
from mainspring.worker.attempt import Executor
from mainspring.worker.executors.python import PythonExecutor
from mainspring.worker.executors.shell import ShellExecutor
from mainspring.worker.watchdog_link import WatchdogLink


def build_executors(
    tasks: Mapping[str, Task[Any, Any]], *, slots: int, watchdog: WatchdogLink, kill_grace: float
) -> list[Executor]:
    """What a worker can run: the application's tasks, and shell commands."""
    return [
        PythonExecutor(tasks, slots),
        ShellExecutor(watchdog, kill_grace=kill_grace),
    ]
