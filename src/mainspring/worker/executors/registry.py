"""Builds the executors of a worker. A new kind of task needs a package with an `Executor`, and a line here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.sdk.tasks.task import Task
from mainspring.worker.execution.attempt import Executor, NoteProgress, OpenLog
from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.executors.http.address_guard import AddressGuard
from mainspring.worker.executors.http.on_demand import HttpOnDemand
from mainspring.worker.executors.process.executor import ProcessExecutor
from mainspring.worker.executors.python.executor import PythonExecutor
from mainspring.worker.executors.shell.executor import ShellExecutor
from mainspring.worker.executors.shell.sandbox.bubblewrap import Bubblewrap, NoSandbox
from mainspring.worker.processes.accounts import CommandAccounts
from mainspring.worker.processes.caps import NO_CAPS, Caps
from mainspring.worker.processes.watchdog_client import WatchdogClient


def build_executors(
    tasks: Mapping[str, Task[Any, Any]],
    *,
    slots: int,
    watchdog: WatchdogClient,
    kill_grace: float,
    http_guard: AddressGuard | None = None,
    open_log: OpenLog | None = None,
    note_progress: NoteProgress | None = None,
    app: str | None = None,
    server: str = "",
    token: str = "",
    sandbox: Bubblewrap | NoSandbox | None = None,
    confine_all: bool = False,
    accounts: CommandAccounts | None = None,
    isolated: bool = False,
    stop_seconds: float = 0.0,
    caps: Caps = NO_CAPS,
    clock: LoopClock = SYSTEM_CLOCK,
) -> list[Executor]:
    """Executors for the tasks of the application, for shell commands (all of them in `sandbox` with `confine_all`), and
    for HTTP calls to addresses that `http_guard` permits. Shell commands run as one of the `accounts`, and `isolated`
    from all other processes.

    `app` (module:attribute), `server` and `token` are for child processes, which load the application themselves.
    `stop_seconds`: how long they have for the stop hooks of the application; 0 if it has none.
    `caps`: what each run with processes of its own may use.
    """
    folders = WorkFolders(shared=accounts is not None and accounts.change)
    folders.sweep_aside()
    processes = ProcessExecutor(
        {name: task for name, task in tasks.items() if task.kind == "process"},
        slots,
        app=app,
        watchdog=watchdog,
        kill_grace=kill_grace,
        server=server,
        token=token,
        note_progress=note_progress,
        open_log=open_log,
        folders=folders,
        stop_seconds=stop_seconds,
        caps=caps,
        clock=clock,
    )
    return [
        PythonExecutor(
            {name: task for name, task in tasks.items() if task.kind != "process"},
            slots,
            open_log=open_log,
            note_progress=note_progress,
            apart=None if app is None else processes.execute_apart,
        ),
        processes,
        ShellExecutor(
            watchdog,
            kill_grace=kill_grace,
            open_log=open_log,
            folders=folders,
            sandbox=sandbox,
            confine_all=confine_all,
            accounts=accounts,
            isolated=isolated,
            caps=caps,
            clock=clock,
        ),
        HttpOnDemand(http_guard or AddressGuard(), open_log=open_log, clock=clock),
    ]


def warm_up(executors: Iterable[Executor]) -> None:
    """Start child processes if there are process tasks. Call it after the watchdog has been started."""
    for executor in executors:
        if isinstance(executor, ProcessExecutor):
            executor.warm_up()


async def dismiss_children(executors: Iterable[Executor]) -> None:
    """After the last run: child processes run their stop hooks and end. Call it before the watchdog is stopped."""
    for executor in executors:
        if isinstance(executor, ProcessExecutor):
            await executor.dismiss()


def shut_down(executors: Iterable[Executor]) -> None:
    """Call it after the worker has stopped. Its children end with the watchdog, and no new ones are started."""
    for executor in executors:
        if isinstance(executor, ProcessExecutor):
            executor.close()
