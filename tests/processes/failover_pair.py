"""A PostgreSQL and its synchronous standby, to fail over between them."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import asyncpg

from mainspring.store.embedded.binaries import reachable_binaries, wheel_bin_folder
from mainspring.store.embedded.folder import account_for_root
from mainspring.store.embedded.programs import Programs
from tests.processes.cluster import SLOW, eventually, free_port

_SETTINGS = {
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_keep_size": "256MB",
}
_ACCESS = "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"


class Machine:
    """One PostgreSQL."""

    def __init__(self, programs: Programs, data: Path) -> None:
        self.port = free_port()
        self._programs = programs
        self._data = data
        self._process = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self, **settings: str) -> None:
        arguments = ["-D", self._programs.path_of(self._data)]
        for name, value in {**_SETTINGS, "port": str(self.port), **settings}.items():
            arguments += ["-c", f"{name}={value}"]
        with (self._data.parent / f"{self._data.name}.log").open("ab") as log:
            self._process = self._programs.start("postgres", arguments, self._data, stdout=log, stderr=log)

    async def answers(self) -> bool:
        try:
            connection = await asyncpg.connect(self.url(), timeout=10)
        except (OSError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True

    def kill(self) -> None:
        """As a loss of power does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def freeze(self, frozen: bool) -> None:
        """Stop all of its processes, or let them continue: a machine that answers nothing and refuses nothing."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in (self._process.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)


class FailoverPair:
    """`first` is the primary, `second` its standby. What `first` acknowledges is on both."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ms-pair-", dir="/tmp"))
        self._folder.chmod(0o755)
        account = account_for_root([])
        programs = wheel_bin_folder().resolve()
        self._programs = Programs(programs if account is None else reachable_binaries(programs, account, []), account)
        self.first = Machine(self._programs, self._owned("first"))
        self.second = Machine(self._programs, self._owned("second"))

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.first.port},127.0.0.1:{self.second.port}/mainspring"

    async def __aenter__(self) -> FailoverPair:
        data, copy = self._folder / "first", self._folder / "second"
        self._programs.run(
            "initdb",
            ["--pgdata", self._programs.path_of(data), "--username=postgres", "--no-sync", "--auth=trust"],
            data,
        )
        (data / "pg_hba.conf").write_text(_ACCESS)
        self.first.start()
        await eventually(self.first.answers, SLOW, "the primary answers")
        self._programs.run(
            "pg_basebackup",
            ["-D", self._programs.path_of(copy), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-h", "127.0.0.1",
             "-p", str(self.first.port), "-U", "postgres"],
            copy,
        )  # fmt: skip
        self.second.start()
        await eventually(self.second.answers, SLOW, "the standby answers")
        connection = await asyncpg.connect(self.first.url())
        await connection.execute("create database mainspring")
        await connection.execute("alter system set synchronous_standby_names = '*'")
        await connection.execute("select pg_reload_conf()")
        await eventually(lambda: self._is_synchronous(connection), SLOW, "the standby is synchronous")
        await connection.close()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for machine in (self.first, self.second):
            machine.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def promote(self) -> None:
        """Make the standby a primary that waits for no other one."""
        connection = await asyncpg.connect(self.second.url())
        await connection.execute("alter system set synchronous_standby_names = ''")
        await connection.execute("select pg_reload_conf()")
        assert await connection.fetchval("select pg_promote()")
        await connection.close()

    def _owned(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(mode=0o700)
        if self._programs.account is not None:
            self._programs.account.own(folder)
        return folder

    async def _is_synchronous(self, connection: asyncpg.Connection) -> bool:
        return bool(await connection.fetchval("select count(*) from pg_stat_replication where sync_state = 'sync'"))
