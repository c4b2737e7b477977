"""Files that only their owner may read, whatever the umask of the user is.

A process that writes such files sets its umask (`write_privately`). It must not run commands of others, which have the
umask of the user. What earlier versions wrote is changed once.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from pathlib import Path

from mainspring.kernel.logs import get_logger

_OTHERS = 0o077
_DONE = ".private"  # a file in a folder in which everything was changed

log = get_logger("private files")


def write_privately() -> None:
    """From now on this process makes files with mode 0600, and folders with 0700."""
    os.umask(_OTHERS)


def close_to_others(path: Path) -> bool:
    """Take the permissions of others from a file or folder. Returns whether there were any. Links, and what cannot be
    changed, stay as they are."""
    with suppress(OSError):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & _OTHERS:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
            return True
    return False


def close_entries(folder: Path) -> None:
    """Take the permissions of others from what is directly in the folder."""
    for entry in folder.iterdir():
        close_to_others(entry)


def close_all_once(folder: Path) -> None:
    """Take the permissions of others from everything below the folder, in a thread: it may take long, and nothing waits
    for it. A folder in which this was done is left alone: what is written there now is private."""
    if not (folder / _DONE).exists():
        threading.Thread(target=_close_all, args=(folder,), name="mainspring-modes", daemon=True).start()


def _close_all(folder: Path) -> None:
    changed = 0
    try:
        for place, folders, files in os.walk(folder):
            changed += sum(close_to_others(Path(place, name)) for name in (*folders, *files))
        (folder / _DONE).touch(mode=0o600)
    except OSError as error:  # the next start tries again
        log.warning("older files stay readable to others", folder=str(folder), error=str(error))
    if changed:
        log.info("only their owner may read older files now", folder=str(folder), changed=changed)


def sync_folder(folder: Path) -> None:
    """Make the names in this folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
