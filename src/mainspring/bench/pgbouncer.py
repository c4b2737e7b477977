"""A real PgBouncer before a PostgreSQL of ours. It refuses to run as root, so it runs as PostgreSQL's user."""

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
from typing import Any
from urllib.parse import urlsplit

from mainspring.bench.arena import free_port
from mainspring.domain.errors import Unavailable
from mainspring.store.database import Pooling
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import ROLE

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
_PATIENCE = 60.0


class PgBouncer:
    """`settings` are those of its section [pgbouncer]."""

    def __init__(self, postgres: EmbeddedPostgres, **settings: str) -> None:
        if PROGRAM is None:
            raise Unavailable("pgbouncer is not installed", code="no_pgbouncer", hint="apt-get install pgbouncer")
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
        as_other: dict[str, Any] = (
            {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        )
        self._log = (self._folder / "log").open("wb")
        with file.open("rb") as opened:  # as stdin: its user may not pass through the folders above
            self.process = subprocess.Popen(
                [PROGRAM, "/proc/self/fd/0"],
                cwd=postgres.data,
                stdin=opened,
                stdout=self._log,
                stderr=self._log,
                **as_other,
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
            if self.process.poll() is not None or time.monotonic() > give_up:
                raise Unavailable(f"pgbouncer did not start: {said}")
            time.sleep(0.01)


@contextmanager
def way_through(postgres: EmbeddedPostgres, mode: Pooling) -> Iterator[dict[str, str]]:
    """The variables of a server that uses a PgBouncer with this mode, and a direct URL in transaction mode."""
    if mode is Pooling.NONE:
        yield {}
        return
    bouncer = PgBouncer(postgres, pool_mode=mode.value)
    direct = {"MAINSPRING_DIRECT_URL": postgres.url()} if mode is Pooling.TRANSACTION else {}
    try:
        yield {"MAINSPRING_DATABASE_URL": bouncer.url(postgres.url()), "MAINSPRING_PGBOUNCER": mode.value, **direct}
    finally:
        bouncer.stop()
