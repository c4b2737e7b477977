"""From a request to its answer, in one row: the route, an outage of the store, admission, the body, the handler."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from mainspring.api.auth import Admission
from mainspring.api.bodies import no_body, read_body
from mainspring.api.errors import answer_to
from mainspring.api.handlers import RouteHandler
from mainspring.api.large_answers import LargeAnswers
from mainspring.api.large_bodies import LargeBodies, announced_length
from mainspring.api.parameters import arguments_of
from mainspring.api.published_changes import publish_change
from mainspring.api.routing import RouteTable, routable
from mainspring.api.services import Services
from mainspring.api.store_outage import OpenRequests, survives_outages
from mainspring.api.web import NO_CONTENT, Receive, Request, Response, Scope, Send
from mainspring.domain.errors import InvalidInput
from mainspring.kernel.patience import ClientGone

_HOST = re.compile(rb"[0-9A-Za-z!$&'()*+,;=\-._~:\[\]@%]*")


@dataclass(frozen=True, slots=True)
class ServerState:
    """What belongs to one server."""

    services: Services
    admission: Admission
    open_requests: OpenRequests
    large_bodies: LargeBodies
    large_answers: LargeAnswers


class HttpApplication:
    """The routes, and the server that answers them. Without `state` it answers nothing: the routes can be read."""

    def __init__(self, table: RouteTable[RouteHandler], state: ServerState | None = None) -> None:
        self.table = table
        if state is not None:
            self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self.answer(scope, receive)
        if answer is not None:
            await answer.send(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive) -> Response[Any] | None:
        """The answer, ready to be sent. None if the client has gone."""
        scope["app"] = self
        try:
            handler = self._route(scope)
            if handler.is_public:
                return await self._admitted(handler, scope, receive)
            if survives_outages(scope):
                self.state.open_requests.refuse_in_outage()
                return await self._admitted(handler, scope, receive)
            async with self.state.open_requests.guarded():
                return await self._admitted(handler, scope, receive)
        except ClientGone:
            return None
        except Exception as error:  # noqa: BLE001 - every request has an answer
            return answer_to(error, scope)

    def _route(self, scope: Scope) -> RouteHandler:
        if b"%" in scope.get("raw_path", b""):
            scope["path"] = routable(scope["raw_path"])
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        if _HOST.fullmatch(host) is None:
            raise InvalidInput("Invalid host header", code="malformed_request")
        found = self.table.find(scope["path"], scope["method"])
        scope["route"], scope["handler"], scope["path"], scope["path_params"] = found
        return found.handler

    async def _admitted(self, handler: RouteHandler, scope: Scope, receive: Receive) -> Response[Any]:
        may_be_large = await self.state.admission.check(scope)
        if handler.method == "OPTIONS":
            return Response(b"", status_code=NO_CONTENT, headers={"Allow": scope["route"].allow})
        if may_be_large:
            async with self.state.large_bodies.turn(scope, receive) as receive_in_turn:
                return await self._handled(handler, scope, receive_in_turn)
        return await self._handled(handler, scope, receive)

    async def _handled(self, handler: RouteHandler, scope: Scope, receive: Receive) -> Response[Any]:
        arguments = arguments_of(handler.parameters, scope) if handler.parameters else {}
        if handler.takes_request:
            arguments["request"] = Request(scope)
        if handler.decode is not None:
            body = await read_body(receive, handler.request_max_body_size, announced_length(scope))
            if body:
                arguments["data"] = handler.decode(body)
                del body
            elif handler.needs_body:
                raise no_body()
        answer = await handler.function(**arguments)
        if not isinstance(answer, Response):
            answer = Response(answer)
        answer.encode(handler.status_code)
        if answer.status_code < 400:
            publish_change(scope)
        return answer
