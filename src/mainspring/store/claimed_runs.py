"""From the row of a claimed run to the order that its worker gets.

A column that a claim returns is in the fragment `claimed_run` (sql/fragments.sql), here, and in RunOrder.
"""

from __future__ import annotations

from datetime import datetime
from math import ceil
from uuid import UUID

import msgspec

from mainspring.domain.job import DEFAULT_TIMEOUT, Delivery, spec_from_text
from mainspring.domain.run_key import idempotency_key
from mainspring.kernel.callback_addresses import callback_address
from mainspring.store.lanes import Lane
from mainspring.wire.exchange import RunOrder

_MIN_TIMEOUT = 0.001  # for a claim that is handed out again after its run_timeout has passed
_NO_PAYLOAD = msgspec.Raw(b"null")


class ClaimedRun(msgspec.Struct, frozen=True, gc=False):
    """A run that was given to a worker. `time_left`: the remaining seconds of its run_timeout. `losses`: how many
    attempts were lost with their worker. `snoozes`: how many were snoozed. `alone`: it is to begin without
    neighbours."""

    run_id: UUID
    fence: int
    attempt: int
    max_attempts: int
    lane_id: int
    job_id: str | None
    scheduled_for: datetime
    ready_at: datetime
    exclusive: bool
    name: str | None
    payload_text: str | None
    spec_text: str | None
    time_left: float | None
    losses: int
    snoozes: int
    generation: int
    alone: bool


def order_of(row: ClaimedRun, lane: Lane) -> RunOrder:
    """What the worker needs to run it. Raises Unreadable."""
    run_id, job_id, payload, spec_text = row.run_id, row.job_id, row.payload_text, row.spec_text
    order = RunOrder(
        run_id,
        row.fence,
        lane.task,
        row.attempt,
        str(run_id) if job_id is None else job_id,
        row.scheduled_for,
        _NO_PAYLOAD if payload is None else msgspec.Raw(payload),
        DEFAULT_TIMEOUT,
        row.max_attempts,
        row.name,
        None,
        row.exclusive,
        lane.queue,
        None,
        row.losses,
        row.snoozes,
        generation=row.generation,
        alone=row.alone,
        tenant=lane.tenant_id,
    )
    if spec_text is not None:
        spec = spec_from_text(spec_text)
        order.at_most_once = spec.delivery is Delivery.AT_MOST_ONCE
        order.timeout = spec.timeout
        if (left := row.time_left) is not None:
            order.timeout = max(_MIN_TIMEOUT, min(spec.timeout, ceil(left * 1000) / 1000))
        order.command = spec.command
        if spec.setup is not None:
            order.setup = spec.setup
        if spec.callback is not None:
            order.callback = callback_address(run_id, row.fence)
        order.paced = spec.rate_limit is not None
        if spec.repeat is not None:
            order.idempotency_key = idempotency_key(order.job_id, order.scheduled_for, spec.repeat, order.generation)
    return order
