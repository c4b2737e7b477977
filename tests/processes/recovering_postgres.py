"""A PostgreSQL that is in recovery for as long as a test wants."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from mainspring.roles.supervisor import start_postgres
from mainspring.store.embedded import EmbeddedPostgres

# PostgreSQL asks for an archived file and waits for the answer: it recovers until the file `go` exists.
_ASKS = "while [ ! -e go ]; do sleep 0.02; done; exit 1"
_SETTINGS = {"fsync": "off", "shared_buffers": "32MB", "hot_standby": "off"}


class RecoveringPostgres:
    """Down at first. A `with` gives it up."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ms-recovery-", dir="/tmp"))
        self.postgres = EmbeddedPostgres(self._folder / "data", settings={**_SETTINGS, "restore_command": _ASKS})
        self._starting: asyncio.Task[None] | None = None

    async def create(self) -> None:
        """Create the cluster, and stop it as a crash does."""
        await start_postgres(self.postgres)
        self.postgres.stop("immediate")

    async def start(self) -> None:
        """Returns when it answers that it recovers."""
        signal_file = self.postgres.data / "recovery.signal"
        signal_file.touch()
        owner = self.postgres.data.stat()
        os.chown(signal_file, owner.st_uid, owner.st_gid)
        self._starting = asyncio.create_task(start_postgres(self.postgres))
        while not (self.postgres.data / ".s.PGSQL.5432").exists():
            assert not self._starting.done(), "it must recover until it may go on"
            await asyncio.sleep(0.02)

    async def go_on(self) -> None:
        """Let the recovery end. Returns when PostgreSQL accepts connections."""
        assert self._starting is not None
        (self.postgres.data / "go").touch()
        await self._starting

    async def remove(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        self.postgres.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)
