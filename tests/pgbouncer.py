"""A real PgBouncer before the PostgreSQL of the tests. It refuses to run as root, so it runs as PostgreSQL's user."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mainspring.bench.arena import free_port
from mainspring.store.database import Database, Pooling
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import ROLE

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
_PATIENCE = 60.0

needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed: apt-get install pgbouncer")


class PgBouncer:
    """`settings` are those of its section [pgbouncer]."""

    def __init__(self, postgres: EmbeddedPostgres, **settings: str) -> None:
        assert PROGRAM is not None
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="ms-pgbouncer-", dir="/tmp"))
        owner = postgres.data.stat()
        os.chown(self._folder, owner.st_uid, owner.st_gid)
        password = postgres.access.password_file.read_text().strip().rpartition(":")[2]
        # Through its working directory it reaches the socket, whatever the modes of the folders above.
        host = "/proc/self/cwd" if postgres.socket_folder == postgres.data else str(postgres.socket_folder)
        chosen = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "default_pool_size": "40",
            "max_client_conn": "500",
            "server_login_retry": "1",
            "verbose": "0",
            **settings,
        }
        file = self._folder / "pgbouncer.ini"
        lines = ["[databases]", f"* = host={host} port=5432 user={ROLE} password={password}", "[pgbouncer]"]
        file.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in chosen.items()), ""]))
        os.chown(file, owner.st_uid, owner.st_gid)
        file.chmod(0o600)
        as_other = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        self._log = (self._folder / "log").open("wb")
        relative = os.path.join("/proc/self/fd", "0")  # the file is opened before the user is changed
        with file.open("rb") as opened:
            self.process = subprocess.Popen(
                [PROGRAM, relative], cwd=postgres.data, stdin=opened, stdout=self._log, stderr=self._log, **as_other
            )
        try:
            self._until_it_listens()
        except BaseException:
            self.stop()
            raise

    def url(self, of: str) -> str:
        """The URL of a database of that PostgreSQL, through this PgBouncer."""
        return f"postgresql://someone@127.0.0.1:{self.port}{urlsplit(of).path}?sslmode=disable"

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _until_it_listens(self) -> None:
        give_up = time.monotonic() + _PATIENCE
        while True:
            with suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", self.port), timeout=_PATIENCE).close()
            said = (self._folder / "log").read_text()
            assert self.process.poll() is None and time.monotonic() < give_up, f"pgbouncer did not start: {said}"
            time.sleep(0.01)


@contextmanager
def a_pgbouncer(postgres: EmbeddedPostgres, mode: Pooling, **settings: str) -> Iterator[PgBouncer]:
    """Each transaction gets the session that was idle for longest, so that they change often in transaction mode."""
    bouncer = PgBouncer(postgres, pool_mode=mode.value, server_round_robin="1", **settings)
    try:
        yield bouncer
    finally:
        bouncer.stop()


def through(bouncer: PgBouncer, url: str, mode: Pooling, *, direct: bool = False) -> Database:
    return Database(bouncer.url(url), url if direct else None, mode)
