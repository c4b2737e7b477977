"""What a worker gives to its executors when they are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.sdk.tasks.task import Task
from mainspring.worker.execution.attempt import NoteProgress, OpenLog
from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.processes.accounts import CommandAccounts
from mainspring.worker.processes.caps import NO_CAPS, Caps
from mainspring.worker.processes.watchdog_client import WatchdogClient


@dataclass(frozen=True, kw_only=True)
class ExecutorSetting:
    """The parts of a worker that executors use.

    tasks: of the application. app (module:attribute), server and token: for child processes, which load the application
    themselves. sandbox: of commands, all of which run in it with `confine_all`. accounts: the users that commands run
    as. isolated: commands see no other processes. stop_seconds: how long child processes have for the stop hooks of the
    application; 0 if it has none. caps: what each run with processes of its own may use. options: the values of the
    options of kinds, by name.
    """

    tasks: Mapping[str, Task[Any, Any]]
    slots: int
    watchdog: WatchdogClient
    kill_grace: float
    open_log: OpenLog | None = None
    note_progress: NoteProgress | None = None
    app: str | None = None
    server: str = ""
    token: str = field(default="", repr=False)
    sandbox: Any = None
    confine_all: bool = False
    accounts: CommandAccounts | None = None
    isolated: bool = False
    stop_seconds: float = 0.0
    caps: Caps = NO_CAPS
    clock: LoopClock = SYSTEM_CLOCK
    options: Mapping[str, Any] = field(default_factory=dict)
    folders: WorkFolders = field(init=False)

    def __post_init__(self) -> None:
        folders = WorkFolders(shared=self.accounts is not None and self.accounts.change)
        folders.sweep_aside()
        object.__setattr__(self, "folders", folders)
