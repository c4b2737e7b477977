"""The exchange: a worker sends its heartbeat, inventory and outcomes, and gets runs to start and runs to cancel.

It is a long poll. It is safe to repeat, also on another server: see docs/architecture.md, "The exchange". A new field
of a request must be added to NEWER_FIELDS (protocol.py). Workers ignore unknown fields of a reply.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from mainspring.kernel.config import DEFAULT_QUEUE
from mainspring.wire.execution import Cause, RunSetup
from mainspring.wire.protocol import BASE_PROTOCOL, LONGEST_SECRET
from mainspring.wire.secrets import RunSecrets
from mainspring.wire.usage import Usage

Milliseconds = Annotated[float, Meta(ge=0, le=1e12)]  # as a date has room for: 31 years
OutcomeStatus = Literal["SUCCESS", "FAILED", "CANCELLED", "RETURNED"]


class WorkerHello(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The worker describes itself. It sends this with its first exchange, and when the server does not know it.

    signatures: the JSON Schema of the payload, for each task that declares its parameters. It also contains the options
    of the task, under OPTIONS_KEYWORD (wire/tasks.py). lease: the seconds of silence after which others may take the
    ordinary runs of this worker. The answer says what is granted; a worker that does not ask has 7. protocol: the
    protocol of the worker. From 2 on the worker reports which runs have started. secret: only early workers of protocol
    2 send it here, and nowhere else. It is ignored, and such a worker is bound to its token. Others send it as
    SECRET_HEADER.
    """

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    queues: list[str]
    tasks: list[str]
    slots: Annotated[int, Meta(ge=1, le=100_000)]
    labels: dict[str, str] = {}
    version: str = ""
    signatures: dict[str, msgspec.Raw] = {}
    lease: Annotated[float, Meta(gt=0)] | None = None
    protocol: Annotated[int, Meta(ge=1, le=1000)] = BASE_PROTOCOL
    secret: Annotated[str, Meta(max_length=LONGEST_SECRET)] = ""


class Outcome(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The outcome of one attempt. RETURNED gives back an unstarted run (drain, recall). It uses no attempt. With an
    error it gives back a run that had started, unless it says unstarted: the worker ended it with its lease, and the
    run counts as lost. unstarted: the attempt never began. snooze: the attempt, whose status is FAILED, asks for
    another one after so many seconds, and uses none. A server that does not know the field sees a failure with the same
    `retry_after`. usage: what its processes have used. callback: the service that the attempt, whose status is FAILED,
    has called answers later."""

    run_id: UUID
    fence: int
    status: OutcomeStatus = "SUCCESS"
    held_ms: Milliseconds = 0.0
    ran_ms: Milliseconds = 0.0
    error: str | None = None
    retry: bool = True
    retry_after: float | None = None
    result: msgspec.Raw = msgspec.Raw(b"")
    cause: Cause | None = None
    unstarted: bool = False
    snooze: Annotated[float, Meta(ge=0)] | None = None
    usage: Usage | None = None
    callback: bool = False


class Held(msgspec.Struct, array_like=True):
    """One entry of the inventory: a run that the worker holds, started or not."""

    run_id: UUID
    fence: int


class Progress(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The progress of a running attempt: a fraction from 0 to 1, and a message. `number` rises with each progress of an
    attempt, so one that arrives late or twice has no effect. usage: what its processes have used so far."""

    run_id: UUID
    fence: int
    number: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=1000)] | None = None
    usage: Usage | None = None


class QueueShare(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """At most `most` of the requested runs come from this queue. One free slot is kept for each queue of `keep_for`
    that gets no run in this exchange."""

    most: Annotated[int, Meta(ge=0, le=10_000)]
    queue: str
    keep_for: list[str] = []


Start = tuple[UUID, int, Milliseconds]


class ExchangeRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The worker sends its outcomes, its held runs and its free slots, and asks which runs to start and to stop.

    seq: rises by one with every exchange that is sent. recover: an earlier reply may have been lost. inventory: the
    runs that the worker holds. It is required with recover: claimed runs that are not in it are sent again.
    shares: divide `free` between queues that have weights. The server fills them in the given order, and sends no run
    of other queues. room: how many more runs the worker takes of each task with a limit. unstarted: how many of the
    held runs wait for a slot. These can be recalled. started: runs that have begun and last longer than a moment, as
    run, fence, and the milliseconds since they began. Each is sent once.
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
    started: Annotated[list[Start], Meta(max_length=10_000)] = []


class RunOrder(msgspec.Struct, omit_defaults=True):
    """One run for a worker, with everything that it needs to execute it.

    exclusive: two attempts of it must never overlap (at most once, or an overlap rule). So the worker stops it when it
    has had no acknowledgement for `exclusive_kill`, also if only the database is unavailable.
    losses: how many attempts of it were lost with their worker. If there are any, the task may have ended the worker's
    process, and the worker runs it apart from others. snoozes: how often it was snoozed. at_most_once: it never starts
    again, so it cannot be snoozed. alone: the process of its last worker ended while it ran, so it begins without
    neighbours, as far as that is possible.
    idempotency_key: only if it does not consist of job and fire time alone.
    generation: the generation of the job. It is part of the idempotency key from the second on.
    paced: it has a rate, so the worker reports its start soon.
    start_within: after so many seconds, from the moment at which the exchange was sent, the run must not start, because
    the token of its rate is spent. The worker then hands it back. None: at any time.
    tenant: to which the run belongs. An executor may serve some tenants only, and log lines about the run name it. None
    from an older server, unless there is a setup.
    callback: the address at which the service that it calls may answer later. Empty: the servers have no public URL.
    secrets: the values of those that the job names. The worker hides them in everything that it sends.
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
    losses: int = 0
    snoozes: int = 0
    at_most_once: bool = False
    idempotency_key: str | None = None
    generation: int = 1
    paced: bool = False
    start_within: float | None = None
    alone: bool = False
    tenant: int | None = None
    secrets: RunSecrets | None = None
    callback: str | None = None


class LeaseGrant(msgspec.Struct, frozen=True):
    """For how many seconds an acknowledgement lasts, counted from just before the exchange was sent: for ordinary runs
    (`kill`) and for exclusive ones. It holds for the rest of the incarnation, at every server."""

    kill: float
    exclusive_kill: float


class ExchangeReply(msgspec.Struct, omit_defaults=True):
    """acked: how many of the request's outcomes are settled (recorded now or before, or fenced). fenced: runs whose
    outcome or progress is refused, because another worker has the run now. runs: runs to start. stop: runs to cancel.
    superseded: a newer exchange replaced this one, or another transaction has locked rows that it needs. The worker
    then sends its outcomes again, unless all of them are acked. recall: how many unstarted runs to give back, because
    other workers are idle. drain: the worker must finish its runs and stop. protocol: the protocol of this server
    (protocol.py). lease: what is granted to a worker that asks for a lease in its hello. It is stored before it is
    sent. all_tenants: the answer to a hello whose token belongs to no tenant: the worker gets runs of all. give_back:
    runs to hand back if they have not started, because their queue is paused. retry_in: the server has too much to do;
    send the next exchange after so many seconds."""

    seq: int
    acked: int = 0
    fenced: list[UUID] = []
    runs: list[RunOrder] = []
    stop: list[UUID] = []
    superseded: bool = False
    recall: int = 0
    drain: bool = False
    protocol: int = BASE_PROTOCOL
    lease: LeaseGrant | None = None
    all_tenants: bool = False
    give_back: list[UUID] = []
    retry_in: float | None = None
