"""Fires that were not run, as clients see them."""

from __future__ import annotations

from datetime import datetime

import msgspec


class MissedRange(msgspec.Struct):
    """A range of fires that were not run. backfills: those that make up for some of them, newest first."""

    first: datetime
    last: datetime
    count: int
    reason: str
    recorded_at: datetime
    generation: int = 1
    backfills: list[str] = []


class MissedFires(msgspec.Struct):
    """A range of fires of a job that were not run. name: that of the job as it is now. backfills: those that make up
    for some of them, newest first, ten at most."""

    job_id: str
    name: str
    first: datetime
    last: datetime
    count: int
    reason: str
    recorded_at: datetime
    generation: int = 1
    backfills: list[str] = []


class MissedList(msgspec.Struct, omit_defaults=True):
    """A page of missed fires. `searched_to`: the page is short because a filter matches few of very many; those that
    were recorded since then have been searched, and `next` continues there."""

    missed: list[MissedFires]
    next: str | None = None
    searched_to: datetime | None = None
