"""Messages about backfills: the fires of a past range of a job, as runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.formats import Moment
from mainspring.wire.states import BackfillOrder, BackfillStateWord

AtOnce = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1000})]


class BackfillRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"from_": "from"}):
    """The body of `POST /v1/jobs/{id}:backfill`: the fires from `from` on and before `to`. concurrency: how many of its
    runs are alive at once. order: whether it begins with the oldest or the newest fire."""

    from_: Moment
    to: Moment
    concurrency: AtOnce = 1
    order: BackfillOrder = "oldest"


class BackfillPatch(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/backfills/{id}`."""

    concurrency: AtOnce


class BackfillCancel(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/backfills/{id}:cancel`. It may be empty. running: stop also runs that a worker has."""

    running: bool = False


class BackfillView(msgspec.Struct, rename={"from_": "from"}):
    """A backfill. total: the fires in its range. existing: those that had a run before. created: those that became runs
    of this backfill. running: those of these that have not ended. remaining: fires that are yet to be dealt with; of a
    cancelled backfill, those that never will. succeeded, failed, cancelled, skipped: how its runs have ended. reason:
    why it does not go on. etag: for If-Match."""

    id: str
    job_id: str
    generation: int
    state: BackfillStateWord
    reason: str | None
    from_: datetime
    to: datetime
    order: BackfillOrder
    concurrency: int
    total: int
    existing: int
    created: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    remaining: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    etag: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing of it changes any more."""
        return self.ended_at is not None


class BackfillList(msgspec.Struct):
    backfills: list[BackfillView]
    next: str | None = None
