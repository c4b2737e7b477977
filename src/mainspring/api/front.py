"""The application as it is served: what a busy server refuses, what a standby may answer, and what is compressed."""

from __future__ import annotations

from mainspring.api.compression import compress
from mainspring.api.fresh_reads import FreshReads
from mainspring.api.http_application import HttpApplication
from mainspring.api.load_shedding import LoadShedder
from mainspring.api.web import Receive, Scope, Send
from mainspring.kernel.loop_monitor import LoopMonitor
from mainspring.store.pool import Store


class Front:
    """An ASGI app."""

    def __init__(self, app: HttpApplication, monitor: LoopMonitor, store: Store) -> None:
        self._app = app
        self._shedder = LoadShedder(app, monitor, store)
        self._fresh = None if store.replica is None else FreshReads(store.replica)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await self._shedder.refusal(scope, receive)
        if refusal is not None:
            await refusal.send(scope, receive, send)
            return
        counted = self._shedder.enter(scope)
        try:
            if self._fresh is None:
                answer = await self._app.answer(scope, receive)
            else:
                answer = await self._fresh.answer(self._app, scope, receive)
            if answer is not None:
                compress(scope, answer)
                await answer.send(scope, receive, send)
        finally:
            self._shedder.leave(counted)
