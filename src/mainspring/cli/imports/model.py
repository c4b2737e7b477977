"""What an import finds: jobs, what is refused, and how the source itself works out its fires."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

# All fires from the one time until the other, by the rules of the source.
Fires = Callable[[datetime, datetime], Iterable[datetime]]
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 60


@dataclass(slots=True)
class Imported:
    """A job. notes: comments above it. fires: how the source works out its fires; None if nothing here knows."""

    id: str
    body: dict[str, Any]
    source: str
    notes: list[str] = field(default_factory=list)
    fires: Fires | None = None


@dataclass(slots=True)
class NotImported:
    """Something that no job can stand for."""

    source: str
    what: str
    why: str


@dataclass(slots=True)
class Import:
    """channels: of notifications, with comments above them."""

    jobs: list[Imported] = field(default_factory=list)
    refused: list[NotImported] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    channels: dict[str, tuple[dict[str, Any], list[str]]] = field(default_factory=dict)

    def add(self, job: Imported) -> None:
        """Add the job, under an id of its own."""
        taken = {one.id for one in self.jobs}
        name, number = job.id, 2
        while job.id in taken:
            job.id, number = f"{name}-{number}", number + 1
        self.jobs.append(job)

    def refuse(self, source: str, what: str, why: str) -> None:
        self.refused.append(NotImported(source, what, why))


def id_from(text: str, otherwise: str = "job") -> str:
    """An id made of a text."""
    return _UNFIT.sub("-", text).strip("-._")[:_LONGEST].strip("-._") or otherwise
