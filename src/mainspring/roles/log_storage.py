"""Where a server stores logs, and how much: the store that the user names, the folder of an earlier version, and the
bounds of what PostgreSQL gets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mainspring.domain.sizes import parse_size
from mainspring.kernel.config import LOG_FOLDER_NAME
from mainspring.kernel.private_files import close_all_once, close_to_others
from mainspring.operations.logs.log_bounds import LogBounds
from mainspring.store.log_files import LogFiles, open_log_files

_BOUNDS = {"run": "MAINSPRING_LOG_PER_RUN", "tenant": "MAINSPRING_LOG_PER_TENANT", "day": "MAINSPRING_LOG_PER_DAY"}


@dataclass(frozen=True, slots=True)
class LogStorage:
    """`named`: None if output is stored in PostgreSQL. `old`: the folder in which it was stored before."""

    named: LogFiles | None = None
    old: LogFiles | None = None

    async def close(self) -> None:
        """Call it last."""
        if used := self.named or self.old:
            await used.close()


async def open_log_storage(log_store: str | None, data: Path) -> LogStorage:
    """Raises InvalidInput if the named store cannot be used."""
    named = None
    if log_store is not None:
        named = open_log_files(log_store)
        await named.check()
        if named.folder is not None:  # a folder that the user named keeps its own mode
            close_all_once(named.folder)
    folder = (data / LOG_FOLDER_NAME).absolute()
    if not _has_files(folder) or (named is not None and named.folder == folder):
        return LogStorage(named)
    close_to_others(folder)
    close_all_once(folder)
    return LogStorage(named, open_log_files(folder))


def log_bounds() -> LogBounds:
    """Raises InvalidInput if a variable is not a size."""
    given = {
        name: parse_size(text, variable)
        for name, variable in _BOUNDS.items()
        if (text := os.environ.get(variable, "").strip())
    }
    return LogBounds(**given)


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())
