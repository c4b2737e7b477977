"""What a task may know about the run it is in."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """`moment` (aware) in UTC with a Z, as it stands in idempotency keys and in a shell run's environment."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def idempotency_key(job_id: str, scheduled_for: datetime) -> str:
    """The same for every attempt of one fire, and for no other fire."""
    return f"{job_id}/{rfc3339(scheduled_for)}"


@dataclass(slots=True, eq=False)
class Context:
    """Given to a task that has a parameter named `ctx` or annotated `Context`."""

    job_id: str
    run_id: str
    attempt: int
    scheduled_for: datetime
    task: str
    name: str | None = None
    _cancel: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def idempotency_key(self) -> str:
        """Job and fire time: hand it to services that de-duplicate, every attempt of this fire has the same one."""
        return idempotency_key(self.job_id, self.scheduled_for)

    @property
    def cancelled(self) -> bool:
        """True once somebody asked for this run to stop. A thread task looks at it between two steps; an async task
        is cancelled at its next await besides."""
        return self._cancel.is_set()

    def wait_for_cancel(self, timeout: float | None = None) -> bool:
        """Pause a thread task for `timeout` seconds, or less when the run is to stop; the answer is `cancelled`."""
        return self._cancel.wait(timeout)

    def cancel(self) -> None:
        """Raise the flag. The worker does this."""
        self._cancel.set()
