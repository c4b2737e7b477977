"""Exchanges before submissions: with too much to do, a server refuses submissions and reads before it reads their body.

It answers 429 with Retry-After, which clients obey. A refusal must be cheap, or refusing would use up the server: it is
made before anything is read or looked up. Workers that are not answered lose their runs, and those come back as more
load; so what is urgent (operations/access/urgency.py) is never refused.
"""

from __future__ import annotations

import asyncio
from functools import partial

from mainspring.api.auth import Admission
from mainspring.api.errors import answer_to
from mainspring.api.http_application import HttpApplication
from mainspring.api.routing import MethodNotAllowed
from mainspring.api.web import Receive, Response, Scope
from mainspring.domain.errors import NotFound, TooManyRequests
from mainspring.kernel import metrics
from mainspring.kernel.can_wait import can_wait
from mainspring.kernel.config import LARGE_BYTES, MAX_BODY_BYTES
from mainspring.kernel.loop_monitor import LoopMonitor
from mainspring.kernel.patience import OUTAGE_BUDGET, OutagePatience, patience_here
from mainspring.operations.access.urgency import is_urgent
from mainspring.store.pool import Store

MOST_OPEN = 1000  # submissions and reads under way
MOST_OPEN_BUSY = 100  # the same once exchanges have to wait for the loop or for the database: each makes it worse
BUSY = 0.03  # seconds of smoothed lag of the loop
LONGEST_WAIT = 0.1  # seconds for which an exchange waits for a connection to the database
RETRY_AFTER = 1
_WORKERS = "/v1/exchange"
_STREAMED = ("/logs", "/v1/stream")
# They wait while PostgreSQL is away.
_SUBMISSIONS = frozenset(f"{root}{end}" for root in ("/jobs", "/v1/jobs", "/v1/events") for end in ("", "/", ":batch"))


def _patience(scope: Scope, receive: Receive, admission: Admission) -> OutagePatience:
    until = asyncio.get_running_loop().time() + OUTAGE_BUDGET
    known = partial(admission.has_seen, scope)
    return OutagePatience(until, partial(_size, scope), known, partial(_is_gone, receive))


def _size(scope: Scope) -> int:
    size = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return min(int(size), MAX_BODY_BYTES) if size.isdigit() else LARGE_BYTES


async def _is_gone(receive: Receive) -> bool:
    """After the body, the only message is that the client has closed the connection."""
    asking = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    if not asking.done():
        asking.cancel()
        return False
    kind: str = asking.result()["type"]
    return kind == "http.disconnect"


class LoadShedder:
    """`monitor` says how late the loop is, and `store` for how long an exchange has waited for a connection."""

    def __init__(self, app: HttpApplication, monitor: LoopMonitor, store: Store) -> None:
        self._app = app
        self._monitor = monitor
        self._store = store
        self._open = 0

    async def refusal(self, scope: Scope, receive: Receive) -> Response[bytes] | None:
        """The answer to a request that has to come again. A submission may wait here for PostgreSQL to come back."""
        path = scope["path"]
        if path.startswith(_WORKERS):
            return None
        if scope["method"] == "POST" and path in _SUBMISSIONS:
            admission = self._app.state.admission
            patience = _patience(scope, receive, admission)
            patience_here.set(patience)
            if self._store.waiting.away and admission.may_be_valid(scope):
                if not await self._store.waiting.wait(patience):
                    patience_here.set(None)  # it is refused
                return None
        if not self._full or not self._may_refuse(scope):
            return None
        metrics.refused.inc()
        return answer_to(
            TooManyRequests(
                "the server has too much to do at this moment; nothing was stored", code="overloaded",
                hint=f"try again after {RETRY_AFTER} s",
            ),
            scope,
        )  # fmt: skip

    def enter(self, scope: Scope) -> int:
        """A request is under way. Return as how many it counts, for `leave`. Streams last perhaps for days, and
        exchanges are never refused: they do not count."""
        path = scope["path"]
        if path.startswith(_WORKERS) or path.endswith(_STREAMED):
            return 0
        can_wait.set(True)  # in the context of this request
        self._open += 1
        return 1

    def leave(self, counted: int) -> None:
        self._open -= counted

    @property
    def _full(self) -> bool:
        if self._open < MOST_OPEN_BUSY:
            return self._monitor.overloaded
        return self._open >= MOST_OPEN or self._monitor.lag > BUSY or self._store.urgent_wait > LONGEST_WAIT

    def _may_refuse(self, scope: Scope) -> bool:
        try:
            found = self._app.table.find(scope["path"], scope["method"])
        except (NotFound, MethodNotAllowed):  # there is no such route, and saying so costs nothing
            return False
        return not is_urgent(found.handler.operation)
