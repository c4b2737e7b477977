"""The events of `GET /v1/stream`."""

from __future__ import annotations

import msgspec

from mainspring.wire.states import RunStateWord


class StreamOpen(msgspec.Struct):
    """Event `open`: the stream has begun. What changed before is not told, so clients read once more now. beat: a
    comment comes at least every so many seconds; a stream that is silent for three times as long is dead."""

    topics: list[str]
    beat: float


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """Event `change`: something of a topic has changed.

    changes    jobs, runs, queues and workers: how many changes were counted since the last event, about
    status     run and workflow-run: the state, as it is now. None: it does not exist any more
    attempt    run: the number of the attempt
    progress   run: from 0 to 1, if it tells it
    version    job: its version; None if it has no row of its own
    steps      workflow-run: how many runs of its steps are in each state, until it has ended
    """

    topic: str
    changes: int = 0
    status: RunStateWord | None = None
    attempt: int | None = None
    progress: float | None = None
    version: int | None = None
    steps: dict[str, int] | None = None


class StreamEnd(msgspec.Struct):
    """Event `end`: no event follows. reason: `signed_out` (the token or session is not valid any more), `server_stops`
    (connect again) or `full` (there are too many streams)."""

    reason: str
