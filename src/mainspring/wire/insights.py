"""How the system is doing."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mainspring.wire.runs import QueueView


class Overview(msgspec.Struct):
    """The response to `GET /v1/insights/overview`: runs, queues and workers of the tenant, and the state of the whole
    installation.

    `status` is `degraded` if something is wrong, and `problems` says what, in sentences. `rate` is how many runs ended
    per second over the last minute, and `succeeded` and `failed` are how many of these ended so. `fire_lag` is how many
    seconds the most overdue job is late. `busy` is the number of running runs and `slots` that of the live workers. The
    queues are the busiest ones. `schedulers` is the number of live ones, which share the `shards`. `paused` says in
    sentences what is paused and by whom.
    """

    status: Literal["ok", "degraded"]
    problems: list[str]
    at: datetime
    version: str
    rate: float
    succeeded: int
    failed: int
    waiting: int
    scheduled: int
    oldest_seconds: float | None
    fire_lag: float
    busy: int
    slots: int
    workers: dict[str, int]
    dead_letters: int
    schedulers: int
    shards_held: int
    shards: int
    queues: list[QueueView]
    paused: list[str] = []
