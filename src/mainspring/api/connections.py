"""The connections of a server: how many there may be, and for how long a client may keep one waiting.

Each connection has a deadline, which its protocol moves when the client gets on (http_protocol.py). One sweep a second
compares the deadlines with the time, so a request needs no timer of its own.

A connection counts as *waiting* while the server waits for a client that has not authenticated on it: a head or body
that is not complete, or nothing at all. Anybody can open such connections, so they are closed first, those that have
waited longest before others. A connection that has authenticated once never counts again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from mainspring.kernel import metrics
from mainspring.kernel.config import MAX_CONNECTIONS, MAX_UNAUTHENTICATED

# Beyond the limit, so many connections may still ask for what is urgent: health, metrics, exchanges.
SPARE = 16
_NEARLY = 0.9
_LATE = 3.0  # intervals


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Seconds, bytes and numbers.

    A head has `head` seconds. A body that arrives and an answer that is read have to move at least `rate` bytes a
    second, averaged over each `window`: 120 KiB in 30 s. So 64 MiB may take 4.5 hours on a line of 32 kbit/s.
    `per_address` is the number of waiting connections; those that have waited less than `patience` are not closed for
    it, because many clients may connect at once from one address.
    """

    head: float = 10.0
    idle: float = 75.0
    idle_nearly_full: float = 5.0
    window: float = 30.0
    rate: float = 4096.0
    last_words: float = 5.0
    connections: int = MAX_CONNECTIONS
    per_address: int = MAX_UNAUTHENTICATED
    patience: float = 1.0

    @property
    def least(self) -> float:
        """The bytes that have to move in each window."""
        return self.window * self.rate


class EdgeConnection(Protocol):
    """What the table knows of a connection."""

    address: str
    deadline: float

    @property
    def idle(self) -> bool:
        """Whether the client has no request under way."""

    def expire(self, now: float) -> None:
        """The deadline has passed: close the connection, or move the deadline if the client got on."""

    def dismiss(self, why: str) -> None:
        """Others need the place: answer 503 if possible, and close."""


class Connections:
    """All connections of a server. It is a periodic task: `run_once` is the sweep."""

    name = "connections"
    interval = 1.0

    def __init__(self, limits: EdgeLimits | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.limits = limits or EdgeLimits()
        self.now = clock()  # of the last sweep: cheap, and exact enough
        self._clock = clock
        self.open: set[EdgeConnection] = set()
        self._waiting: OrderedDict[EdgeConnection, float] = OrderedDict()
        self._by_address: dict[str, OrderedDict[EdgeConnection, None]] = {}

    def waiting_at(self, address: str) -> int:
        return len(self._by_address.get(address, ()))

    def opened(self, connection: EdgeConnection) -> bool:
        """A client has connected. False if there are too many connections: only urgent requests are served on it."""
        self.open.add(connection)
        self._dismiss_of_address(connection.address)
        beyond = len(self.open) - self.limits.connections
        served = beyond <= 0 or self._dismiss_oldest()
        self.waits(connection)
        if not served and beyond > SPARE:
            connection.dismiss("full")
        return served

    def closed(self, connection: EdgeConnection) -> None:
        self.open.discard(connection)
        self.busy(connection)

    def waits(self, connection: EdgeConnection) -> None:
        """Note that the server now waits for this client, which has not authenticated."""
        self._waiting[connection] = self.now
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None

    def busy(self, connection: EdgeConnection) -> None:
        """The request is complete, or the client has authenticated, or has gone."""
        if self._waiting.pop(connection, None) is None:
            return
        of_address = self._by_address[connection.address]
        del of_address[connection]
        if not of_address:
            del self._by_address[connection.address]

    def room(self, arriving: int) -> int:
        """How many connections can be accepted now, besides those that are arriving already."""
        return self.limits.connections + SPARE - len(self.open) - arriving

    def make_room(self) -> bool:
        """Close some of the connections that wait. False if none does."""
        made = [self._dismiss_oldest() for _ in range(SPARE)]
        return any(made)

    async def run_once(self) -> int:
        return self.sweep()

    def sweep(self) -> int:
        """Judge the connections whose deadline has passed. Return how many there were."""
        now = self._clock()
        stood_still = now - self.now > _LATE * self.interval
        self.now = now
        metrics.connections.set(len(self.open))
        if stood_still:  # this process did; what clients sent meanwhile is not read yet
            return 0
        due = [connection for connection in self.open if connection.deadline <= now]
        if len(self.open) > _NEARLY * self.limits.connections:
            early = now + self.limits.idle - self.limits.idle_nearly_full
            due = [one for one in self.open if one.deadline <= (early if one.idle else now)]
        for connection in due:
            connection.expire(now)
        return len(due)

    def _dismiss_of_address(self, address: str) -> None:
        """Close the connection of this address that has waited longest, if the address has too many."""
        most, of_address = self.limits.per_address, self._by_address.get(address)
        if not most or of_address is None or len(of_address) < most:
            return
        oldest = next(iter(of_address))
        if self.now - self._waiting[oldest] >= self.limits.patience:
            self._dismiss(oldest, "address")

    def _dismiss_oldest(self) -> bool:
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        self._dismiss(oldest, "full")
        return True

    def _dismiss(self, connection: EdgeConnection, why: str) -> None:
        self.busy(connection)  # it closes in a moment, and is not chosen twice
        connection.dismiss(why)
