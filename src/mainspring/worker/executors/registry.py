"""Builds the executors of a worker: those of the application's tasks, and those of the installed kinds of task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mainspring.kinds.registry import task_kinds
from mainspring.sdk.tasks.task import Task
from mainspring.wire.tasks import KIND_KEYWORD
from mainspring.worker.execution.attempt import Executor
from mainspring.worker.executors.process.executor import ProcessExecutor
from mainspring.worker.executors.python.executor import PythonExecutor
from mainspring.worker.executors.setting import ExecutorSetting


def build_executors(tasks: Mapping[str, Task[Any, Any]], **given: Any) -> list[Executor]:
    """Executors for the tasks of the application, and for each kind of task that this worker offers. `given`: see
    ExecutorSetting."""
    setting = ExecutorSetting(tasks=tasks, **given)
    processes = ProcessExecutor(
        {name: task for name, task in tasks.items() if task.kind == "process"},
        setting.slots,
        app=setting.app,
        watchdog=setting.watchdog,
        kill_grace=setting.kill_grace,
        server=setting.server,
        token=setting.token,
        note_progress=setting.note_progress,
        open_log=setting.open_log,
        folders=setting.folders,
        stop_seconds=setting.stop_seconds,
        caps=setting.caps,
        clock=setting.clock,
    )
    functions = PythonExecutor(
        {name: task for name, task in tasks.items() if task.kind != "process"},
        setting.slots,
        open_log=setting.open_log,
        note_progress=setting.note_progress,
        apart=None if setting.app is None else processes.execute_apart,
    )
    built = [kind.part("executor").build(setting) for kind in task_kinds()]
    return [functions, processes, *(executor for executor in built if executor is not None)]


def declared_kinds() -> dict[str, msgspec.Raw]:
    """The kinds of other packages that a worker declares, so that a server without them can name the package."""
    return {
        kind.name: msgspec.Raw(msgspec.json.encode({KIND_KEYWORD: kind.package}))
        for kind in task_kinds()
        if kind.package is not None
    }


def labels_of(executors: Iterable[Executor]) -> dict[str, str]:
    """The labels that the executors add to those of the worker, so that jobs can require them."""
    labels: dict[str, str] = {}
    for executor in executors:
        labels |= getattr(executor, "labels", {})
    return labels


def warm_up(executors: Iterable[Executor]) -> None:
    """Start child processes if there are process tasks. Call it after the watchdog has been started."""
    for executor in executors:
        if isinstance(executor, ProcessExecutor):
            executor.warm_up()


async def dismiss_children(executors: Iterable[Executor]) -> None:
    """End the child processes after the last run. They run their stop hooks first. Call it before the watchdog is
    stopped."""
    for executor in executors:
        if isinstance(executor, ProcessExecutor):
            await executor.dismiss()


def shut_down(executors: Iterable[Executor]) -> None:
    """Call it after the worker has stopped. Its children end with the watchdog, and no new ones are started."""
    for executor in executors:
        if isinstance(executor, ProcessExecutor):
            executor.close()
