"""The folders and object stores of a server's logs: the one that the user names, and that of an earlier version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mainspring.kernel.config import LOG_FOLDER_NAME
from mainspring.kernel.private_files import close_all_once, close_to_others
from mainspring.store.log_files import LogFiles, open_log_files


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


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
