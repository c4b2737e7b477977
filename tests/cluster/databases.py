"""The PostgreSQL of a cluster: crashes, failovers to a synchronous standby, and the old primary that comes back.

A standby is made when a failover is wanted: two PostgreSQL all the time would slow everything down. From the moment at
which the primary waits for it until the promotion, what is acknowledged is on both.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import asyncpg

from mainspring.kernel.config import BACKUP_PASSWORD_FILE_NAME, POSTGRES_PASSWORD_FILE_NAME
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import BACKUP_ROLE, ROLE

SETTINGS = {
    "shared_buffers": "64MB",
    "max_connections": "200",
    "track_commit_timestamp": "on",
    "wal_keep_size": "256MB",
}
_LOOK_EVERY = 0.05
_SYNCHRONOUS = "\nsynchronous_standby_names = '*'\n"


class Databases:
    """`current` is the primary. Whoever stops or replaces it holds `lock`."""

    def __init__(self, folder: Path) -> None:
        self.lock = asyncio.Lock()
        self.current = EmbeddedPostgres(folder / "db", settings=SETTINGS)
        self.password_file = self.current.access.password_file  # of the role, in every PostgreSQL
        self._folder = folder
        self._made = [self.current]

    @property
    def socket(self) -> Path:
        return socket_of(self.current)

    def end(self) -> None:
        for postgres in self._made:
            postgres.stop("immediate")

    async def crash(self, down_for: float) -> None:
        """`pg_ctl stop -m immediate`, a pause, and a start."""
        await asyncio.to_thread(self.current.stop, "immediate")
        await asyncio.sleep(down_for)
        await self.start()

    async def start(self) -> None:
        for _ in self.current.starting():
            await asyncio.sleep(0.02)

    async def make_standby(self) -> EmbeddedPostgres:
        """A standby that has everything. From now on the primary waits for it at each commit."""
        primary = self.current
        standby = EmbeddedPostgres(
            self._folder / f"db{len(self._made)}", settings=SETTINGS | {"primary_conninfo": self._conninfo(primary)}
        )
        self._made.append(standby)
        standby.folder.mkdir(mode=0o755)
        primary.folder.chmod(0o711)  # the account of the standby must reach its socket
        for name in (POSTGRES_PASSWORD_FILE_NAME, BACKUP_PASSWORD_FILE_NAME):
            shutil.copy(primary.folder / name, standby.folder)
        await asyncio.to_thread(_copy, primary, standby)
        (standby.data / "standby.signal").touch()
        for _ in standby.starting():
            await asyncio.sleep(0.02)
        while await _asked(primary, "select state from pg_stat_replication") != "streaming":
            await asyncio.sleep(_LOOK_EVERY)
        with (primary.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(_SYNCHRONOUS)
        assert primary.pid is not None
        os.kill(primary.pid, signal.SIGHUP)
        while await _asked(primary, "select sync_state from pg_stat_replication") != "sync":
            await asyncio.sleep(_LOOK_EVERY)
        return standby

    async def fail_over(self, standby: EmbeddedPostgres) -> EmbeddedPostgres:
        """The primary dies, and its standby takes over. Returns the old primary."""
        old = self.current
        await asyncio.to_thread(old.stop, "immediate")
        (standby.data / "promote").touch()
        assert standby.pid is not None
        os.kill(standby.pid, signal.SIGUSR1)
        while await _asked(standby, "select pg_is_in_recovery()"):
            await asyncio.sleep(_LOOK_EVERY)
        self.current = standby
        return old

    async def forget(self, old: EmbeddedPostgres) -> None:
        await asyncio.to_thread(old.stop, "immediate")
        await asyncio.to_thread(shutil.rmtree, old.data)

    def _conninfo(self, primary: EmbeddedPostgres) -> str:
        password = primary.access.backup_password_file.read_text().strip().rpartition(":")[2]
        return f"host={primary.socket_folder} port=5432 user={BACKUP_ROLE} password={password}"


def see_standbys(postgres: EmbeddedPostgres) -> Generator[None, None, str]:
    """Let the role see the state of standbys. PostgreSQL must not run."""
    return postgres.account_programs().single_user(postgres.data, "postgres", f"grant pg_monitor to {ROLE}")


def socket_of(postgres: EmbeddedPostgres) -> Path:
    return postgres.socket_folder / ".s.PGSQL.5432"


def _copy(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    arguments = ["--dbname", primary.backup_url(), "--pgdata", str(standby.data), "--wal-method=stream"]
    primary.programs.run(
        "pg_basebackup", [*arguments, "--checkpoint=fast", "--no-sync", "--no-password"], primary.folder
    )
    for socket in standby.data.glob(".s.PGSQL.*"):  # of the primary, whose lock forbids the start
        socket.unlink()


async def _asked(postgres: EmbeddedPostgres, query: str) -> Any:
    connection = await asyncpg.connect(postgres.url(), timeout=60)
    try:
        return await connection.fetchval(query, timeout=60)
    finally:
        connection.terminate()
