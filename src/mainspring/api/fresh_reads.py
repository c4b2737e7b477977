"""Which requests may be answered from a standby: those that only read, and not what their caller has just changed.

Each server remembers when a token or a session has last changed something. Behind a load balancer the next request may
go to another server, so a browser also gets a cookie for as long as a standby may be behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mainspring.api.http_application import HttpApplication
from mainspring.api.web import Receive, Response, Scope
from mainspring.store.replica import Replica, reads_since

COOKIE = "mainspring_changed"
_SAFE = frozenset(("GET", "HEAD"))
_MOST_CALLERS = 10_000
_SLACK = 2.0  # seconds that the cookie lives longer than a standby may be behind


class FreshReads:
    """Of one process."""

    def __init__(self, replica: Replica, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._changed: dict[int, float] = {}
        self._before = 0.0  # when those that were forgotten had changed something at the latest
        seconds = round(replica.max_staleness + _SLACK)
        self._cookie = f"{COOKIE}=1; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict"

    async def answer(self, app: HttpApplication, scope: Scope, receive: Receive) -> Response[Any] | None:
        """The answer of the app, with the cookie if the request has changed something."""
        headers = {name: value for name, value in scope["headers"] if name in (b"authorization", b"cookie")}
        cookie = headers.get(b"cookie", b"")
        own = f"{COOKIE}=1".encode()
        caller = hash(headers.get(b"authorization") or cookie.replace(own, b"").strip(b"; "))
        if scope["method"] in _SAFE:
            reads_since.set(None if COOKIE.encode() in cookie else self._changed.get(caller, self._before))
            return await app.answer(scope, receive)
        reads_since.set(None)
        try:
            answer = await app.answer(scope, receive)
        finally:
            self._note(caller)  # what it has changed is committed
        if cookie and answer is not None:
            answer.cookies = (*answer.cookies, self._cookie)
        return answer

    def _note(self, caller: int) -> None:
        if len(self._changed) >= _MOST_CALLERS:
            self._changed.clear()
            self._before = self._now()
        self._changed[caller] = self._now()
