"""Up to which change the log is complete.

Numbers of changes come from a sequence, and transactions commit in another order: a reader that goes up to the newest
number that it sees loses those of transactions that commit later. So a number counts when every transaction that was
open when it was the last one has ended.
"""

from __future__ import annotations

from mainspring.store import sinks
from mainspring.store.pool import Connection


class Horizon:
    def __init__(self) -> None:
        self.last = 0
        self._next: tuple[int, int] | None = None

    async def advance(self, connection: Connection) -> int:
        """Outside of a transaction. Returns the number of the last change that may be read."""
        if self._next is None:
            last, before = await sinks.mark(connection, self.last)
            if before is None:
                return self.last
            if last < self.last:  # another database, such as one that was restored
                self.last = 0
            self._next = last, before
        last, before = self._next
        if await sinks.oldest_transaction(connection) >= before:
            self.last, self._next = last, None
        return self.last

    def reset(self) -> None:
        """The connection was lost, perhaps to another server: what was known of transactions counts no more."""
        self.last, self._next = 0, None
