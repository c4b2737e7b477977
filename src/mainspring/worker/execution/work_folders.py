"""Working folders: a new one for each attempt, removed with its contents when the attempt is gone."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from mainspring.kernel.logs import get_logger

_PREFIX = "mainspring-worker-"
_LOCK = ".lock"

log = get_logger("work folders")


class WorkFolders:
    """The folders of a worker are in one root folder that only its user may enter. The worker locks the root for as
    long as it lives, so that others can recognise a root that was left behind."""

    def __init__(self, parent: str | None = None) -> None:
        self._parent = Path(parent or tempfile.gettempdir())
        self._root: Path | None = None
        self._lock = -1
        self._made = 0

    @property
    def root(self) -> Path:
        """Created on first use, and again if a clean-up job has removed it."""
        while self._root is None or not self._root.exists():
            self.close()
            self._root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent)).resolve()
            self._lock = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)  # another worker's sweep may have been first: the loop checks again
            atexit.register(self.close)
        return self._root

    def make(self) -> Path:
        """A new, empty folder."""
        self._made += 1
        folder = self.root / str(self._made)
        folder.mkdir(mode=0o700)
        return folder

    async def remove(self, folder: Path) -> None:
        try:
            folder.rmdir()  # noqa: ASYNC240 - most are empty and need no thread
        except OSError:
            await asyncio.to_thread(remove_tree, folder)

    def sweep_aside(self) -> None:
        """Run `sweep` in its own thread: it may take long, and nothing waits for it."""
        threading.Thread(target=self.sweep, name="mainspring-sweep", daemon=True).start()

    def sweep(self) -> None:
        """Remove the folders of workers that were killed."""
        for root in self._parent.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                if root.is_symlink() or root.stat().st_uid != os.getuid():
                    continue
                lock = os.open(root / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    log.info("removing the working folders of a worker that is gone", folder=str(root))
                    remove_tree(root)
                finally:
                    os.close(lock)

    def close(self) -> None:
        """Remove the root and its contents."""
        if self._root is not None:
            remove_tree(self._root)
            os.close(self._lock)
            self._root = None
            atexit.unregister(self.close)


def remove_tree(folder: Path) -> None:
    """Remove a folder, even if parts of it have no write or execute permission. Logs what cannot be removed."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    with suppress(OSError):
        folder.chmod(0o700)
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.warning("a working folder cannot be removed", folder=str(folder))
