"""The idempotency key of a run, which tasks pass to services that de-duplicate. Every key is derived here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.wire.exchange import RunOrder


def rfc3339(moment: datetime) -> str:
    """`moment` (aware) in UTC with a Z, as in idempotency keys and in the environment of a shell run."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def idempotency_key(job_id: str, scheduled_for: datetime, repeat: str | None = None, generation: int = 1) -> str:
    """A key that is the same for all attempts of one fire and different for every other fire. From the second
    generation of a job on, the generation is part of it. A job_id has no slash.

    A replay of a run that did not succeed has the key of that run, so its effects are not repeated. A run that repeats
    a success, or has another payload, is to have effects: `repeat` is its own id, and its replays keep it."""
    job = job_id if generation == 1 else f"{job_id}/{generation}"
    key = f"{job}/{rfc3339(scheduled_for)}"
    return key if repeat is None else f"{key}/{repeat}"


def key_of(order: RunOrder) -> str:
    """The key of a run that a worker was given."""
    return order.idempotency_key or idempotency_key(order.job_id, order.scheduled_for, generation=order.generation)
