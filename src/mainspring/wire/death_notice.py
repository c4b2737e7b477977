"""The death notice: the watchdog of a worker says that the worker and everything it had started are gone."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from mainspring.wire.protocol import LONGEST_SECRET

MAX_STARTED = 10_000
CLEAN_EXIT = "exit status 0"  # what the watchdog says of a worker that was asked to stop


class DeathNotice(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The headers Mainspring-Worker and Mainspring-Worker-Secret prove it. secret: the same, for servers of older
    versions that read it here; it is ignored. started: the exclusive runs that had started and were not settled, as
    (run_id, fence). None if the watchdog cannot say. exit: how the worker's process ended, in words. cause: crashed if
    the worker's process ended by itself or by a signal, and killed if the process that was started was. None if the
    worker had been asked to stop, or was cut off from its servers."""

    worker_id: UUID
    secret: Annotated[str, Meta(max_length=LONGEST_SECRET)] = ""
    started: Annotated[list[tuple[UUID, int]], Meta(max_length=MAX_STARTED)] | None = None
    exit: Annotated[str, Meta(max_length=200)] = ""
    cause: Literal["crashed", "killed"] | None = None


class DeathReceipt(msgspec.Struct):
    """rescued: how many runs this server has taken from the worker. A repeated notice finds none."""

    rescued: int = 0
