"""The processes of one `mainspring server --processes N`. Each knows its own place, and tells the others in a folder
that they share whether it is ready. Their counters are in the same folder (kernel/metrics.py)."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

_VARIABLE = "MAINSPRING_SERVER_PROCESS"
_STALE = 10.0  # seconds after which a process that has told nothing is not ready


@dataclass(frozen=True, slots=True)
class SiblingPlace:
    """The place of a process among its siblings. `turn` is 0 or 1: while a process replaces another one, both have the
    same number. `listeners` are the descriptors of the sockets that it shall accept from."""

    number: int
    turn: int
    count: int
    folder: str
    listeners: tuple[int, ...]

    @property
    def name(self) -> str:
        return place_name(self.number, self.turn)

    def environment(self) -> dict[str, str]:
        """The environment of the process that shall have this place."""
        return {_VARIABLE: json.dumps(asdict(self))}

    def tell(self, ready: bool) -> None:
        """Tell the siblings whether this process is ready."""
        path = _told(self.folder, self.name)
        draft = path.with_suffix(".new")
        draft.write_text(f"{time.monotonic()} {int(ready)}", encoding="ascii")
        draft.replace(path)

    def ready_siblings(self) -> int:
        """How many of the `count` places have a process that is ready."""
        return sum(any(is_ready(self.folder, number, turn) for turn in (0, 1)) for number in range(self.count))


@cache
def own_place() -> SiblingPlace | None:
    """The place of this process. None if it is no process of `mainspring server --processes N`. Children of this
    process do not inherit it."""
    text = os.environ.pop(_VARIABLE, None)
    if text is None:
        return None
    fields = json.loads(text)
    return SiblingPlace(**{**fields, "listeners": tuple(fields["listeners"])})


def place_name(number: int, turn: int) -> str:
    return f"{number}{'ab'[turn]}"


def is_ready(folder: str, number: int, turn: int) -> bool:
    """Whether the process at this place has told that it is ready, and not long ago: all processes of a machine have
    the same monotonic clock."""
    try:
        told_at, ready = _told(folder, place_name(number, turn)).read_text(encoding="ascii").split()
    except (FileNotFoundError, ValueError):
        return False
    return ready == "1" and time.monotonic() - float(told_at) < _STALE


def forget(folder: str, number: int, turn: int) -> None:
    """Forget what a process told that has ended."""
    _told(folder, place_name(number, turn)).unlink(missing_ok=True)


def _told(folder: str, name: str) -> Path:
    return Path(folder) / f"ready-{name}"
