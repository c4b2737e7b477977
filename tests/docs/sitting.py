"""Does what the documentation says, as its reader would: page after page, in one folder and one shell.

Blocks marked `sh` are commands. Blocks marked `python` whose first line is a file name, such as `# shop.py`, are
written to that file. A command that serves (up, server, worker) goes on in the background. `# exits with 1` after a
command is the exit code that it must have; otherwise it is 0.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (\w+\.py)\n")
_EXITS = re.compile(r"# exits with (\d+)")
_SERVES = re.compile(
    r"(?:make run|(?:\S*/)?mainspring (?:up|server|scheduler|worker(?! (?:list|drain)))|uvicorn|"
    r"python -m \S+ runserver)\b"
)
_MARK = "--- the end of the command ---"
_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Step:
    """A command, or a file to write."""

    where: str
    text: str
    file: str | None = None

    @property
    def exit_code(self) -> int:
        found = _EXITS.search(self.text)
        return int(found[1]) if found else 0

    @property
    def serves(self) -> bool:
        return _SERVES.match(self.text) is not None


def steps_of(page: Path) -> Iterator[Step]:
    text = page.read_text()
    for block in _FENCED.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        if block[1] == "sh":
            yield from _commands(f"{page.name}:", line, block[2])
        elif block[1] == "python" and (named := _FILE.match(block[2])):
            yield Step(f"{page.name}:{line}", block[2], file=named[1])


def _commands(where: str, line: int, block: str) -> Iterator[Step]:
    """The commands of a block. One with an open quote or a backslash at its end goes on in the next line."""
    begun, started = "", line
    for number, text in enumerate(block.splitlines(), start=line):
        begun, started = (f"{begun}\n{text}", started) if begun else (text, number)
        try:
            complete = not text.endswith("\\")
            shlex.split(begun, comments=True)
        except ValueError:
            complete = False
        if complete:
            if begun.strip():
                yield Step(f"{where}{started}", begun)
            begun = ""
    assert not begun, f"{where}{started}: this command has no end: {begun}"


@dataclass(slots=True)
class Shell:
    """A shell that stays open: variables and the folder are those of the command before."""

    folder: Path
    environment: Mapping[str, str]
    _process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def run(self, command: str) -> tuple[int, str]:
        """The exit code and the output of a command."""
        timer = threading.Timer(_PATIENCE, self.kill)
        timer.start()
        try:
            self._tell(f"{{ {command}\n}} </dev/null\nprintf '\\n%s %s\\n' '{_MARK}' $?\n")
            return self._hear()
        finally:
            timer.cancel()

    def serve(self, command: str, log: Path) -> str:
        """Start a command in the background, and return its pid. `stop` ends it."""
        self._tell(f"{{ exec {command}\n}} </dev/null >{shlex.quote(str(log))} 2>&1 &\n")
        return self.run("echo $!")[1]

    def end(self, pids: Iterable[str]) -> None:
        """End these commands that serve."""
        self.run(f"for job in {' '.join(pids)}; do kill -TERM $job; wait $job; done")

    def stop(self) -> None:
        """End what serves, the last first, and the shell."""
        self.end(["$(jobs -p | tac)"])
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait(_PATIENCE)

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)

    def _tell(self, text: str) -> None:
        stdin: IO[str] | None = self._process.stdin
        assert stdin is not None
        stdin.write(text)
        stdin.flush()

    def _hear(self) -> tuple[int, str]:
        said: list[str] = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_MARK):
                return int(line.split()[-1]), "".join(said).strip()
            said.append(line)
        raise AssertionError(f"the shell ended, or the command took longer than {_PATIENCE:g} s:\n{''.join(said)}")


def environment_of(folder: Path, programs: Path) -> dict[str, str]:
    """As in a new terminal: no settings of Mainspring."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "PYTEST_"))}
    return kept | {"HOME": str(folder), "PATH": f"{programs}:{kept['PATH']}", "PYTHON": sys.executable}
