"""The exchange: the one call a worker makes. Long poll; heartbeat, inventory, outcomes, claims and cancels in one.

Safe to repeat, also at another server: see docs/architecture.md, "The exchange". A field that is added to what workers
send goes into NEWER_FIELDS (protocol.py); what servers send must be ignored by workers that do not know it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from mainspring.kernel.config import DEFAULT_QUEUE
from mainspring.wire.execution import Cause, RunSetup
from mainspring.wire.protocol import BASE_PROTOCOL

OutcomeStatus = Literal["SUCCESS", "FAILED", "CANCELLED", "RETURNED"]


class WorkerHello(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Who the worker is; sent with its first exchange and whenever the server does not know it.

    signatures: for each task that declares its parameters, the JSON Schema that its payload must fit. A task that has
    options declares them in it too, under OPTIONS_KEYWORD (wire/tasks.py).
    """

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    queues: list[str]
    tasks: list[str]
    slots: Annotated[int, Meta(ge=1, le=100_000)]
    labels: dict[str, str] = {}
    version: str = ""
    signatures: dict[str, msgspec.Raw] = {}


class Outcome(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What became of one attempt. RETURNED hands an unstarted run back (drain, recall); it spends no attempt."""

    run_id: UUID
    fence: int
    status: OutcomeStatus = "SUCCESS"
    held_ms: float = 0.0
    ran_ms: float = 0.0
    error: str | None = None
    retry: bool = True
    retry_after: float | None = None
    result: msgspec.Raw = msgspec.Raw(b"")
    cause: Cause | None = None


class Held(msgspec.Struct, array_like=True):
    """One line of the inventory: a run that the worker holds, started or not."""

    run_id: UUID
    fence: int


class Progress(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How far a running attempt has come: a share from 0 to 1, and words. `number` rises from word to word of an
    attempt: one that comes late, or twice, changes nothing."""

    run_id: UUID
    fence: int
    number: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=1000)] | None = None


class QueueShare(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Part of what a worker asks for: at most `most` runs of one queue. Of `free`, one is left over for each queue of
    `keep_for` that this exchange has given nothing."""

    most: Annotated[int, Meta(ge=0, le=10_000)]
    queue: str
    keep_for: list[str] = []


class ExchangeRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """ "Here are my outcomes, what I hold, and my free slots; what shall I run, and what shall I stop?"

    seq rises by one with every exchange that is sent. recover says that an earlier answer may have been lost, and
    inventory (needed with recover) lists what the worker holds, so that claims that never arrived are handed out again.
    portions divide `free` where queues have weights: they are filled in the order given, and nothing outside them is
    handed out. room says of the tasks that have a limit here how many more runs of each may come. unstarted is how many
    of the held runs wait for a slot: what may be recalled.
    """

    worker_id: UUID
    seq: Annotated[int, Meta(ge=1)]
    free: Annotated[int, Meta(ge=0, le=10_000)] = 0
    wait_ms: Annotated[int, Meta(ge=0, le=10_000)] = 0
    outcomes: list[Outcome] = []
    inventory: list[Held] = []
    recover: bool = False
    draining: bool = False
    stopped: bool = False
    hello: WorkerHello | None = None
    progress: list[Progress] = []
    shares: Annotated[list[QueueShare], Meta(max_length=10_000)] = []
    room: dict[str, Annotated[int, Meta(ge=0)]] = {}
    unstarted: Annotated[int, Meta(ge=0)] = 0


class RunOrder(msgspec.Struct, omit_defaults=True):
    """One run handed to a worker, with all that is needed to run it.

    exclusive: two attempts of it must never overlap (at most once, or an overlap rule), so it is stopped as soon as the
    worker has had no acknowledgement for `kill`, also while only the database is away.
    """

    run_id: UUID
    fence: int
    task: str
    attempt: int
    job_id: str
    scheduled_for: datetime
    payload: msgspec.Raw = msgspec.Raw(b"null")
    timeout: float = 3600.0
    max_attempts: int = 4
    name: str | None = None
    command: str | list[str] | None = None
    exclusive: bool = False
    queue: str = DEFAULT_QUEUE
    setup: RunSetup | None = None


class ExchangeReply(msgspec.Struct, omit_defaults=True):
    """acked: how many of the request's outcomes are settled (recorded now or before, or fenced); fenced: refused with
    409 (a progress too), the run has changed hands; runs: what to run; stop: runs to cancel; superseded: a newer
    exchange took over, or another transaction holds rows that this one needs: unless all outcomes are acked, the worker
    sends all of them again; recall: how many unstarted runs to give back, because others are idle; drain: finish, and
    come back no more; protocol: which fields this server takes (protocol.py)."""

    seq: int
    acked: int = 0
    fenced: list[UUID] = []
    runs: list[RunOrder] = []
    stop: list[UUID] = []
    superseded: bool = False
    recall: int = 0
    drain: bool = False
    protocol: int = BASE_PROTOCOL
