"""One node: its etcd, its Patroni and its PostgreSQL. They start, stop, die and freeze together or alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from mainspring.bench.patroni.programs import PatroniPrograms
from mainspring.bench.patroni.settings import ADDRESS, Passwords, Ports, etcd_command, patroni_settings
from mainspring.domain.errors import Unavailable
from mainspring.worker.processes.watchdog.tree import descendants

_STOP_PATIENCE = 30.0


class PatroniNode:
    def __init__(
        self, name: str, folder: Path, programs: PatroniPrograms, members: dict[str, Ports], passwords: Passwords
    ) -> None:
        self.name = name
        self.ports = members[name]
        self._folder = folder / name
        self._programs = programs
        self._members = members
        self._passwords = passwords
        self._etcd: subprocess.Popen[bytes] | None = None
        self._patroni: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{ADDRESS}:{self.ports.postgres}"

    @property
    def rest_url(self) -> str:
        return f"http://{ADDRESS}:{self.ports.patroni}"

    def start(self) -> None:
        """Start what does not run."""
        if not self._folder.exists():
            self._folder.mkdir(mode=0o700)
            settings = patroni_settings(
                self.name, self._folder, self._programs.postgres, self._members, self._passwords
            )
            (self._folder / "patroni.yml").write_text(json.dumps(settings, indent=2), encoding="utf-8")  # JSON is YAML
            (self._folder / "patroni.yml").chmod(0o600)
            if self._programs.account is not None:
                self._programs.account.own(self._folder)
        if not _lives(self._etcd):
            etcd = etcd_command(self._programs.etcd, self.name, self._folder / "etcd", self._members)
            self._etcd = self._run(etcd, "etcd.log")
        if not _lives(self._patroni):
            interpreter = str(self._programs.interpreter)
            self._patroni = self._run([interpreter, "-m", "patroni", str(self._folder / "patroni.yml")], "patroni.log")

    def check_alive(self) -> None:
        """Raise an error with the end of the log if etcd or Patroni has ended by itself."""
        for process, log in ((self._etcd, "etcd.log"), (self._patroni, "patroni.log")):
            if process is not None and not _lives(process):
                said = (self._folder / log).read_text(errors="replace").splitlines()[-8:]
                raise Unavailable("\n".join([f"a process of node {self.name} has ended", *said]))

    def kill_postgres(self) -> None:
        """kill -9 of the postmaster."""
        if (pid := self.postgres_pid()) is not None:
            os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """As a loss of power does: everything at once."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in (self._etcd, self._patroni):
            if process is not None:
                process.wait()

    def freeze(self, frozen: bool) -> None:
        """A machine that answers nothing and refuses nothing. Or it wakes up, and has missed everything."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def ask_patroni_to_end(self) -> None:
        if self._patroni is not None and _lives(self._patroni):
            self._patroni.terminate()

    def wait_for_patroni(self) -> None:
        """Patroni stops its PostgreSQL before it ends."""
        if self._patroni is not None:
            with suppress(subprocess.TimeoutExpired):
                self._patroni.wait(_STOP_PATIENCE)

    def stop_etcd(self) -> None:
        if self._etcd is not None and _lives(self._etcd):
            self._etcd.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._etcd.wait(_STOP_PATIENCE)

    def pids(self) -> list[int]:
        """Of all processes of the node. PostgreSQL is no child of ours: Patroni leaves it behind when it dies."""
        roots = [process.pid for process in (self._patroni, self._etcd) if process is not None and _lives(process)]
        postgres = self.postgres_pid()
        roots += [] if postgres is None else [postgres]
        return list(dict.fromkeys(pid for root in roots for pid in (root, *descendants(root))))

    def postgres_pid(self) -> int | None:
        """Of the postmaster, if it lives and is this node's."""
        try:
            pid = int((self._folder / "postgres" / "postmaster.pid").read_text().splitlines()[0])
            ours = Path(f"/proc/{pid}/cwd").samefile(self._folder / "postgres")
        except (OSError, ValueError, IndexError):
            return None
        return pid if ours else None

    def _run(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self._folder / log).open("ab") as output:
            return self._programs.start(command, self._folder, output)


def _lives(process: subprocess.Popen[bytes] | None) -> bool:
    return process is not None and process.poll() is None
