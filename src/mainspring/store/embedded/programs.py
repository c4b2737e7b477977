"""Runs PostgreSQL's programs: as the right account, in the data folder, with a clean environment."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mainspring.domain.errors import Unavailable
from mainspring.kernel.parent_death import die_with_parent
from mainspring.store.embedded.disarm import safe_settings
from mainspring.store.embedded.folder import FolderAccount

_WORKING_DIRECTORY = Path("/proc/self/cwd")
_SESSIONS_PATIENCE = 60.0
_STEPS_BETWEEN_TRIES = 5
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs in `bin_folder`. They run as `account`, or as our own user if it is None."""

    bin_folder: Path
    account: FolderAccount | None = None
    fsync: str = "on"

    def path_of(self, data: Path) -> str:
        """The path by which the programs reach their data folder.

        Another account often may not pass through the folders above, such as /root. Their modes are not changed for
        it: we enter the data folder before we change to the account, and the programs use their working directory.
        """
        entered = self.account is not None and _WORKING_DIRECTORY.exists()
        return str(_WORKING_DIRECTORY if entered else data)

    def safe_settings(self, data: Path) -> dict[str, str]:
        """Options of every PostgreSQL on this data."""
        return safe_settings(self.path_of(data), int((data / "PG_VERSION").read_text(encoding="ascii")))

    def start(
        self, program: str, arguments: Sequence[str], data: Path, *, ends_by: signal.Signals = signal.SIGINT,
        **streams: Any,
    ) -> subprocess.Popen[bytes]:  # fmt: skip
        """Start a program, with the data folder as its working directory. It ends with this process, by this signal."""
        return self._start([str(self.bin_folder / program), *arguments], program, data, ends_by, streams)

    def start_shell(self, script: str, folder: Path, **streams: Any) -> subprocess.Popen[bytes]:
        """A script that runs programs, in this folder."""
        return self._start(["/bin/sh", "-c", script], "a shell", folder, signal.SIGKILL, streams)

    def _start(
        self, command: Sequence[str], name: str, data: Path, ends_by: signal.Signals, streams: Mapping[str, Any]
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                start_new_session=True,  # Ctrl-C goes only to this process, which stops PostgreSQL last
                preexec_fn=die_with_parent(ends_by),
                cwd=data,
                **streams,
                **self._process_options(),
            )
        except OSError as error:
            raise Unavailable(f"{name} could not be started: {error}") from error

    def run(self, program: str, arguments: Sequence[str], data: Path) -> str:
        """Run a program to its end. Returns its output."""
        process = self.start(
            program, arguments, data, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        shown, said = process.communicate()
        if process.returncode != 0:
            raise Unavailable(f"{program} failed: {said.decode('utf-8', 'replace').strip()}")
        return shown.decode("utf-8", "replace")

    def single_user(
        self, data: Path, database: str, sql: str, settings: Mapping[str, str] = _NO_SETTINGS,
        ends_by: signal.Signals = signal.SIGINT,
    ) -> Generator[None, None, str]:  # fmt: skip
        """Run SQL as superuser without a server. Statements are separated by empty lines. The first error ends it.
        `settings` override those of every PostgreSQL on this data.

        Yields while it waits, because it first recovers the data if the last server was killed.
        """
        give_up = time.monotonic() + _SESSIONS_PATIENCE
        while True:
            shown, said = yield from self._single_user(data, database, sql, settings, ends_by)
            if not said:
                return shown
            # After kill -9 of PostgreSQL its sessions take a moment to end.
            if not sessions_remain(said) or time.monotonic() > give_up:
                raise Unavailable(f"PostgreSQL could not set up the access to its data: {said}")
            for _ in range(_STEPS_BETWEEN_TRIES):
                yield

    def _single_user(
        self, data: Path, database: str, sql: str, chosen: Mapping[str, str], ends_by: signal.Signals
    ) -> Generator[None, None, tuple[str, str]]:
        """The output, and the error messages if it failed."""
        settings = self.safe_settings(data) | {
            "exit_on_error": "on",
            "fsync": self.fsync,
            "log_min_messages": "warning",
            "search_path": "pg_catalog",  # a superuser must not call operators that another user put into public
            **chosen,
        }
        arguments = ["--single", "-j", "-D", self.path_of(data)]
        for name, value in settings.items():
            arguments += ["-c", f"{name}={value}"]
        with tempfile.TemporaryFile() as script, tempfile.TemporaryFile() as shown, tempfile.TemporaryFile() as said:
            script.write(f"{sql.strip()}\n\n".encode())
            script.seek(0)
            process = self.start(
                "postgres", [*arguments, "--", database], data, ends_by=ends_by, stdin=script, stdout=shown, stderr=said
            )
            try:
                while process.poll() is None:
                    yield
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
            said.seek(0)
            errors = said.read().decode("utf-8", "replace").strip() or f"exit code {process.returncode}"
            shown.seek(0)
            return shown.read().decode("utf-8", "replace"), errors if process.returncode != 0 else ""

    def _process_options(self) -> dict[str, Any]:
        """User and environment. The environment has no PG* variables."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        options: dict[str, Any] = {"env": environment | {"LC_ALL": "C"}, "umask": 0o077}
        if self.account is not None:
            options |= {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}
        return options


def sessions_remain(said: str) -> bool:
    """Whether PostgreSQL did not start because sessions of the one before still run."""
    return "shared memory block" in said
