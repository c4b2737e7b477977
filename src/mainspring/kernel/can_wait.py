"""What can wait: requests of clients, while exchanges of workers and background work use what they share."""

from __future__ import annotations

from contextvars import ContextVar

# Whether what runs in this context may wait until the exchanges of workers are served.
can_wait: ContextVar[bool] = ContextVar("can_wait", default=False)

TURNS = 4  # with both kinds waiting, one turn in so many goes to those who can wait
