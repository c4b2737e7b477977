"""Working folders: a new one for each attempt, removed with its contents when the attempt is gone."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import os
import secrets
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from mainspring.kernel.logs import get_logger
from mainspring.worker.execution.tree_removal import TreeRemoval
from mainspring.worker.processes.accounts import Account

_PREFIX = "mainspring-worker-"
_LOCK = ".lock"
_NAME_BYTES = 8

log = get_logger("work folders")


class WorkFolders:
    """The folders of a worker are in one root folder that only its user may enter. If its commands run as other users
    (`shared`), these may pass through the root, but not list it, and the folders have names that cannot be guessed. The
    worker locks the root for as long as it lives, so that others can recognise a root that was left behind."""

    def __init__(self, parent: str | None = None, *, shared: bool = False) -> None:
        self._parent = Path(parent or tempfile.gettempdir())
        self._shared = shared
        self._root: Path | None = None
        self._lock = -1

    @property
    def root(self) -> Path:
        """Created on first use, and again if a clean-up job has removed it."""
        while self._root is None or not self._root.exists():
            self.close()
            self._root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent)).resolve()
            self._lock = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)  # another worker's sweep may have been first: the loop checks again
            if self._shared:
                self._root.chmod(0o711)
            atexit.register(self.close)
        return self._root

    def make(self, account: Account | None = None) -> Path:
        """A new, empty folder that only its owner may enter: the account, or the user of the worker."""
        folder = self.root / secrets.token_hex(_NAME_BYTES)
        folder.mkdir(mode=0o700)
        if account is not None:
            os.chown(folder, account.uid, account.gid)
        return folder

    async def remove(self, folder: Path) -> None:
        """Never fails: what cannot be removed is logged, and does not change how the attempt ended."""
        try:
            folder.rmdir()  # noqa: ASYNC240 - most are empty and need no thread
        except OSError:
            try:
                await asyncio.to_thread(remove_tree, folder)
            except RuntimeError as error:  # no thread can be started; `close` tries again
                log.warning("a working folder cannot be removed", folder=str(folder), error=str(error))

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
                    remove_tree(root, last=_LOCK)
                finally:
                    os.close(lock)

    def close(self) -> None:
        """Remove the root and its contents."""
        if self._root is not None:
            remove_tree(self._root, last=_LOCK)
            os.close(self._lock)
            self._root = None
            atexit.unregister(self.close)


def remove_tree(folder: Path, last: str | None = None) -> None:
    """Remove a folder and its contents. Never fails: it logs what cannot be removed. `last` is a file that stays until
    everything else is gone: a root keeps its lock, so that a later sweep recognises it."""
    try:
        TreeRemoval(folder, last).run()
    except FileNotFoundError:
        return
    except Exception as error:  # noqa: BLE001 - a folder must not end a worker or its sweep
        log.warning("a working folder cannot be removed", folder=str(folder), error=str(error))
