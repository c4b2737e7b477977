"""Exchanges before submissions: with too much to do, a server refuses submissions and reads before it reads their body.

It answers 429 with Retry-After, which clients obey. A refusal must be cheap, or refusing would use up the server: it is
made in front of the framework. Workers that are not answered lose their runs, and those come back as more load; so what
is urgent (operations/access/urgency.py) is never refused.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from litestar import Litestar
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import HTTPScope, Receive, Scope, Send
from litestar.utils import normalize_path

from mainspring.api.auth import Admission
from mainspring.api.handlers import operation_of
from mainspring.domain.errors import NotFound
from mainspring.kernel import metrics
from mainspring.kernel.can_wait import can_wait
from mainspring.kernel.config import LARGE_BYTES, MAX_BODY_BYTES
from mainspring.kernel.loop_monitor import LoopMonitor
from mainspring.kernel.patience import OUTAGE_BUDGET, OutagePatience, patience_here
from mainspring.operations.access.urgency import is_urgent
from mainspring.store.pool import Store
from mainspring.wire.problems import PROBLEM_MEDIA_TYPE, Problem

MOST_OPEN = 1000  # submissions and reads under way
MOST_OPEN_BUSY = 100  # the same once exchanges have to wait for the loop or for the database: each makes it worse
BUSY = 0.03  # seconds of smoothed lag of the loop
LONGEST_WAIT = 0.1  # seconds for which an exchange waits for a connection to the database
RETRY_AFTER = 1
_WORKERS = "/v1/exchange"
_STREAMED = ("/logs", "/v1/stream")
# They wait while PostgreSQL is away.
_SUBMISSIONS = frozenset(f"{root}{end}" for root in ("/jobs", "/v1/jobs", "/v1/events") for end in ("", "/", ":batch"))

_BODY = msgspec.json.encode(
    Problem(
        type="urn:mainspring:problem:overloaded",
        title="overloaded",
        status=429,
        code="overloaded",
        detail="the server has too much to do at this moment; nothing was stored",
        hint=f"try again after {RETRY_AFTER} s",
    )
)
_HEADERS = [
    (b"content-type", PROBLEM_MEDIA_TYPE.encode()),
    (b"content-length", str(len(_BODY)).encode()),
    (b"retry-after", str(RETRY_AFTER).encode()),
]


def _patience(scope: HTTPScope, receive: Receive, admission: Admission) -> OutagePatience:
    until = asyncio.get_running_loop().time() + OUTAGE_BUDGET
    known = partial(admission.has_seen, scope)
    return OutagePatience(until, partial(_size, scope), known, partial(_is_gone, receive))


def _size(scope: HTTPScope) -> int:
    size = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return min(int(size), MAX_BODY_BYTES) if size.isdigit() else LARGE_BYTES


async def _is_gone(receive: Receive) -> bool:
    """After the body, the only message is that the client has closed the connection."""
    asking = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    if not asking.done():
        asking.cancel()
        return False
    return asking.result()["type"] == "http.disconnect"


class LoadShedder:
    """An ASGI app around ours. `monitor` says how late the loop is, and `store` for how long an exchange has waited for
    a connection."""

    def __init__(self, app: Litestar, monitor: LoopMonitor, store: Store) -> None:
        self._app = app
        self._monitor = monitor
        self._store = store
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if path.startswith(_WORKERS):
            await self._app(scope, receive, send)
            return
        if scope["method"] == "POST" and path in _SUBMISSIONS:
            admission: Admission = self._app.state.admission
            patience = _patience(scope, receive, admission)
            patience_here.set(patience)
            if self._store.waiting.away and admission.may_be_valid(scope):
                if not await self._store.waiting.wait(patience):
                    patience_here.set(None)  # it is refused
                await self._count(scope, receive, send)
                return
        if self._full and self._may_refuse(scope):
            metrics.refused.inc()
            await send({"type": "http.response.start", "status": 429, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": _BODY, "more_body": False})
            return
        if path.endswith(_STREAMED):  # a client follows a log or all changes, perhaps for days
            await self._app(scope, receive, send)
            return
        await self._count(scope, receive, send)

    async def _count(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        can_wait.set(True)  # in the context of this request
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1

    @property
    def _full(self) -> bool:
        if self._open < MOST_OPEN_BUSY:
            return self._monitor.overloaded
        return self._open >= MOST_OPEN or self._monitor.lag > BUSY or self._store.urgent_wait > LONGEST_WAIT

    def _may_refuse(self, scope: HTTPScope) -> bool:
        path = normalize_path(scope["path"])
        try:
            _, handler, _, _, _ = self._app.asgi_router.handle_routing(path=path, method=scope["method"])
        except (HTTPException, NotFound):  # there is no such route, and saying so costs nothing
            return False
        return not is_urgent(operation_of(handler))
