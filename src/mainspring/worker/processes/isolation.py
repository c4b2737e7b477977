"""Whether the processes of commands can be kept apart from all others, and what a worker says about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mainspring.kernel.logs import get_logger
from mainspring.worker.processes.accounts import CommandAccounts, own_name
from mainspring.worker.processes.watchdog import namespaces

log = get_logger("worker")


@dataclass(frozen=True, slots=True)
class Isolation:
    """missing: why commands have no pid namespace of their own; None if they have one."""

    missing: str | None = "not looked for"

    @property
    def namespaces(self) -> bool:
        return self.missing is None


def find_isolation(*, wanted: bool) -> Isolation:
    """Try it once."""
    return Isolation(namespaces.why_not() if wanted else "--process-isolation off")


def log_how_commands_run(accounts: CommandAccounts, isolation: Isolation, hidden: Sequence[Path] = ()) -> None:
    """`hidden`: files and folders that commands do not see if they have a namespace."""
    for notice in accounts.notices:
        log.warning(notice)
    usual = accounts.usual
    who = f"commands run as {own_name() if usual is None else usual.name}"
    if isolation.namespaces:
        log.info(f"{who}, each in a pid namespace of its own")
    elif usual is not None:
        log.info(f"{who}, without pid namespaces ({isolation.missing})")
    else:
        log.warning(
            f"{who}, the user of the worker, and without pid namespaces ({isolation.missing}): a command can kill the "
            f"processes that would end it, and leave others behind that outlive their run"
        )
        if hidden:
            log.warning(
                f"commands can read and change everything of this user, also the worker's own files: "
                f"{', '.join(map(str, hidden))}. Run only commands of people who may have these, or start the worker "
                f"with --sandbox bubblewrap or as root"
            )
