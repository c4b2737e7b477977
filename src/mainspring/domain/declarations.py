"""Declarations: which version of an application counts, and which of its schedules are no longer declared.

Each set of schedules that workers of an application declare is a declaration. A new set gets the next number. While
workers of several versions run, the one with the highest number counts, so an old worker that starts late changes
nothing. When the last worker of the newer version is gone, the older one counts again.

The name of an application identifies it if its code gives the name. A default name is that of a module, which another
application may have too. So two declarations with a default name are versions of one application only if there is
evidence: a schedule in common, or the same file on the same host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

KEPT = 10  # declarations of versions that no longer run


class Declaration(msgspec.Struct, frozen=True):
    """What one version of an application declares. live: a worker of it runs. applied_at: when the jobs were last
    changed to what it declares, after another version had changed them."""

    number: int
    fingerprint: str
    named: bool
    source: str
    job_ids: frozenset[str]
    last_at: datetime
    live: bool = False
    applied_at: datetime | None = None


def are_versions(one: Declaration, other: Declaration) -> bool:
    """Whether two declarations with the same name belong to one application."""
    if one.named and other.named:
        return True
    return one.source == other.source or not one.job_ids.isdisjoint(other.job_ids)


def newer_version(mine: Declaration, others: Iterable[Declaration]) -> Declaration | None:
    """The newest version of the application that runs, if it is newer than `mine`."""
    newer = [other for other in others if other.live and other.number > mine.number and are_versions(mine, other)]
    return max(newer, key=lambda other: other.number, default=None)


def number_for(mine: Declaration, others: Sequence[Declaration]) -> int:
    """The number of a version that a worker declares. One that no longer ran and is deployed again becomes the newest,
    unless a newer version runs."""
    last = max((other.number for other in others), default=0)
    returns = mine.number < last and not mine.live
    return last + 1 if mine.number == 0 or (returns and newer_version(mine, others) is None) else mine.number


def is_outdated(mine: Declaration, others: Iterable[Declaration]) -> bool:
    """Whether another version was the last to change jobs to what it declares."""
    moments = [other.applied_at for other in others if other.applied_at is not None and are_versions(mine, other)]
    return mine.applied_at is None or any(moment > mine.applied_at for moment in moments)


class LeftBehind(msgspec.Struct, frozen=True):
    """A job that the application declared earlier and no longer declares. own: it is certain that it was this
    application, and not another one with the same default name."""

    job_id: str
    declared_at: datetime
    own: bool


def left_behind(mine: Declaration, others: Iterable[Declaration]) -> dict[str, LeftBehind]:
    """The jobs that other declarations contain and `mine` does not, by id. The latest declaration of each decides."""
    found: dict[str, LeftBehind] = {}
    for other in sorted(others, key=lambda other: (other.last_at, other.number)):
        own = are_versions(mine, other)
        for job_id in other.job_ids - mine.job_ids:
            found[job_id] = LeftBehind(job_id, other.last_at, own)
    return found


def forgotten(mine: Declaration, others: Iterable[Declaration], left: Iterable[str]) -> list[int]:
    """The numbers of declarations that nobody needs any more: of old versions that no longer run, unless they are the
    latest with one of the jobs `left`."""
    needed = set(left)
    spent: list[int] = []
    newest_first = sorted(others, key=lambda other: (other.last_at, other.number), reverse=True)
    for index, other in enumerate(newest_first):
        holds, needed = needed & other.job_ids, needed - other.job_ids
        if index >= KEPT and not other.live and not holds and other.number != mine.number:
            spent.append(other.number)
    return spent
