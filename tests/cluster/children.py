"""The processes of a cluster. They are started here, identified by their pids, and restarted when they end."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.history import Exit
from tests.processes import forked

ROOT = Path(__file__).resolve().parents[2]
SCHEDULER, SERVER, WORKER = "scheduler", "server", "worker"
ROLES = (SERVER, SCHEDULER, WORKER)
RESTART_AFTER = 1.0


@dataclass
class Seat:
    """A position in the cluster, such as the second scheduler. Its process can be replaced by a new one."""

    role: str
    index: int
    started: int = 0
    child: Child | None = None
    kept_down: bool = False
    clock_shift: float = 0.0
    patches: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    def next_label(self) -> str:
        self.started += 1
        return f"{self.name}.{self.started}"

    @property
    def up(self) -> bool:
        return self.child is not None and self.child.alive


class Child:
    """One process."""

    def __init__(self, seat: Seat, label: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self.seat = seat
        self.label = label
        self.log = log
        self.ready = False
        self.wanted_end = False
        self.paused = False
        self.asked_at: float | None = None
        self.ended_at: float | None = None
        patches = dict(seat.patches)
        if seat.clock_shift:
            patches["ARENA_CLOCK_SHIFT"] = str(seat.clock_shift)
        with log.open("wb") as output:
            self._process = forked.start(
                arguments,
                output,
                _clean_environment() | environment | patches,
                ROOT,
                module="tests.cluster.mutant" if patches else "mainspring",
                with_us=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def stopped(self) -> bool:
        """Whether a signal, from a test or from itself, has stopped it."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        return state == "T"

    def kill(self) -> None:
        self.wanted_end = True
        self._send(signal.SIGKILL)

    def pause(self) -> None:
        self.paused = True
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self.paused = False
        self._send(signal.SIGCONT)

    def terminate(self) -> None:
        self.wanted_end = True
        self.asked_at = time.monotonic()
        self._send(signal.SIGTERM)

    def finish(self) -> None:
        """End the process, whatever its state, and wait for its end."""
        self.kill()
        self._process.wait()

    def exit(self) -> Exit | None:
        """How the process ended. Returned once."""
        code = self._process.poll()
        if code is None or self.ended_at is not None:
            return None
        self.ended_at = time.monotonic()
        return Exit(self.label, self.seat.role, code, self.ended_at, self.ready, self.wanted_end, self.asked_at)

    def last_words(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _send(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "ARENA_"))}
