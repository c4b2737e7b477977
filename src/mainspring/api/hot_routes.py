"""The routes of every job and every exchange, answered in front of the framework.

The framework's routing, keyword model and response take more CPU time than what these handlers do. So a small request
to one of them is checked, decoded and answered here, by the same parts: the guard against outages of the store,
admission, the decoder of the body, the handler, and the problem documents. What is unusual goes to the framework: a
body that may be large or is empty, parameters, another method. The OpenAPI document is made from the same handlers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from litestar import Litestar, Request, Response
from litestar.enums import ScopeType
from litestar.handlers import HTTPRouteHandler
from litestar.types import Receive, Scope, Send

from mainspring.api import errors
from mainspring.api.bodies import Body
from mainspring.api.published_changes import publish_changes
from mainspring.api.store_outage import OpenRequests
from mainspring.domain.errors import MainspringError
from mainspring.kernel.config import LARGE_BYTES
from mainspring.kernel.patience import ClientGone

_JSON = (b"content-type", b"application/json")
_encode = msgspec.json.Encoder().encode


class HotRoute(NamedTuple):
    """A handler, its function, the decoder of its body, and the status of its answer."""

    handler: Any
    function: Callable[[Any, Any], Awaitable[Any]]
    decode: Callable[[bytes], Any]
    status: int


class HotRequest:
    """What these handlers need of a request."""

    __slots__ = ("app", "scope")

    def __init__(self, scope: Any) -> None:
        self.app: Litestar = scope["app"]
        self.scope = scope


def answer_directly(app: Litestar, paths: Iterable[str]) -> None:
    """Let the app answer POST to these paths without the framework."""
    routes = {path: _route(app, path) for path in paths}
    answer = app.asgi_handler

    async def directly(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and scope["method"] == "POST":
            route = routes.get(scope["path"])
            if route is not None and _is_usual(scope):
                await _answer(route, scope, receive, send)
                return
        await answer(scope, receive, send)

    app.asgi_handler = directly


def _route(app: Litestar, path: str) -> HotRoute:
    _, handler, *_ = app.asgi_router.handle_routing(path=path, method="POST")
    assert isinstance(handler, HTTPRouteHandler)
    body = handler.resolve_data_dto()
    assert body is not None and issubclass(body, Body)
    return HotRoute(handler, handler.fn, body.decode, handler.status_code)


def _is_usual(scope: Any) -> bool:
    """Whether the request has no parameters and a small body of known length."""
    if scope["query_string"] or scope.get("root_path"):
        return False
    length = None
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = value
        elif name == b"transfer-encoding":
            return False
    return length is not None and len(length) <= 5 and length.isdigit() and 0 < int(length) <= LARGE_BYTES


async def _answer(route: HotRoute, scope: Any, receive: Receive, send: Send) -> None:
    try:
        status, headers, content = await _guarded(route, scope, receive)
    except ClientGone:
        return
    except MainspringError as error:
        await _refuse(scope, receive, send, errors.on_mainspring_error, error)
        return
    except Exception as error:  # noqa: BLE001 - as the framework does
        await _refuse(scope, receive, send, errors.on_other_error, error)
        return
    send = publish_changes(scope, send)
    length = (b"content-length", b"%d" % len(content))
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
    await send({"type": "http.response.body", "body": content, "more_body": False})


async def _guarded(route: HotRoute, scope: Any, receive: Receive) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """The answer, unless PostgreSQL is unavailable or becomes so meanwhile."""
    requests: OpenRequests = scope["app"].state.open_requests
    async with requests.guarded():
        return await _checked(route, scope, receive)


async def _checked(route: HotRoute, scope: Any, receive: Receive) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    scope["route_handler"], scope["path_params"] = route.handler, {}
    await scope["app"].state.admission.check(scope)
    answer = await route.function(HotRequest(scope), route.decode(await _body(receive)))
    if not isinstance(answer, Response):
        return route.status, [], _encode(answer)
    headers = [(name.lower().encode("latin-1"), str(value).encode("latin-1")) for name, value in answer.headers.items()]
    content = answer.content
    return answer.status_code or route.status, headers, content if isinstance(content, bytes) else _encode(content)


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _refuse(
    scope: Any, receive: Receive, send: Send, handle: Callable[[Any, Any], Response[bytes]], error: Exception
) -> None:
    request: Request[Any, Any, Any] = Request(scope)
    response = handle(request, error).to_asgi_response(app=None, request=request)
    await response(scope, receive, send)
