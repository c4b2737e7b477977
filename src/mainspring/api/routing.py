"""What the framework's router does not do: verbs after a colon, HEAD, and complete Allow headers.

A verb is the last segment of its handler's path, and the handler says so: `verb="pause"` at `/{job_id:str}/pause`.
Clients write `/v1/jobs/j:pause`, which is also how the OpenAPI document shows it. `/v1/jobs/j/pause` means the same.
HEAD is answered wherever GET is.

A name in a path may contain any character. An encoded slash, colon or percent sign is part of the name: the path is
routed with these still encoded, and names are decoded afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from litestar import Litestar
from litestar.exceptions import MethodNotAllowedException, NotFoundException
from litestar.routes import HTTPRoute
from litestar.types import Message, Receive, Scope, Send

from mainspring.api.handlers import routed_handlers
from mainspring.domain.errors import NotFound
from mainspring.domain.texts import shown

VERB = "verb"
ALLOW = "allow"  # the answer to OPTIONS: the framework's own one knows only the methods that the path had at first


def public_path(route: HTTPRoute, handler: Any) -> str:
    """The path as clients write it, with the verb after a colon."""
    path, verb = route.path_format, handler.opt.get(VERB)
    return f"{path.rpartition('/')[0]}:{path.rpartition('/')[2]}" if verb else path


def routable(raw: bytes) -> str:
    """The path with everything decoded that has no meaning in it."""
    path = raw.decode("ascii", "replace")
    return "/".join(":".join(map(_decoded, segment.split(":"))) for segment in path.split("/"))


def _decoded(part: str) -> str:
    return unquote(part).replace("%", "%25").replace("/", "%2F").replace(":", "%3A")


def complete_routing(app: Litestar) -> None:
    """Let the app's router find verbs and answer HEAD."""
    verbs: dict[str, dict[str, str]] = defaultdict(dict)  # "/v1/jobs" -> {"pause": "pause", "run-now": "runNow", ...}
    for route, handler in routed_handlers(app):
        if "GET" in handler.http_methods:
            route.route_handler_map["HEAD"] = route.route_handler_map["GET"]
            route.methods.add("HEAD")
        if VERB in handler.opt:
            noun, _, verb = route.path_format.rsplit("/", 2)
            verbs[noun][verb] = handler.opt[VERB]
    for route, _ in routed_handlers(app):
        route.route_handler_map["OPTIONS"][0].opt[ALLOW] = ", ".join(sorted(route.methods))
    route_plainly = app.asgi_router.handle_routing

    def handle_routing(*, path: str, method: Any) -> Any:
        app, handler, path, params, template = find(path, method)
        if "%" in path:
            params = {name: unquote(value) if isinstance(value, str) else value for name, value in params.items()}
        return app, handler, path, params, template

    def find(path: str, method: Any) -> Any:
        noun, _, last = path.rpartition("/")
        known = verbs.get(noun, {})
        subject, _, verb = last.rpartition(":")
        if ":" not in last and method == "POST":
            subject, _, verb = last.rpartition("%3A")  # some clients encode every colon; a POST to a name is a verb
        if subject and verb in known:
            path, known = f"{noun}/{subject}/{verb}", {}
        elif known and verb != last and method == "POST":
            raise _no_such_verb(verb, known)
        try:
            return route_plainly(path=path, method="GET" if method == "HEAD" else method)
        except NotFoundException:
            if method == "POST" and (meant := verbs.get(noun.rpartition("/")[0])):
                raise _no_such_verb(last, meant) from None
            raise
        except MethodNotAllowedException as error:
            allowed = set((error.headers or {})["allow"].split(", "))
            if "GET" in allowed:
                allowed.add("HEAD")
            names = ", ".join(sorted(allowed))
            hint = f"allowed are {names}" + (f"; {_use(known)}" if known and method == "POST" else "")
            raise MethodNotAllowedException(
                detail=f"{method} is not allowed here", headers={"Allow": names}, extra=[hint]
            ) from None

    app.asgi_router.handle_routing = lru_cache(1024)(handle_routing)
    answer = app.asgi_handler

    async def with_encoded_names(scope: Any, receive: Receive, send: Send) -> None:
        if b"%" in scope.get("raw_path", b""):
            scope["path"] = routable(scope["raw_path"])
        await answer(scope, receive, send)

    app.asgi_handler = with_encoded_names


def _no_such_verb(verb: str, known: Mapping[str, str]) -> NotFound:
    return NotFound(f"there is no verb {shown(verb)} here", code="no_such_route", hint=_use(known))


def _use(verbs: Mapping[str, str]) -> str:
    *most, last = (f":{verb}" for verb in dict.fromkeys(verbs.values()))
    return f"use {', '.join(most)} or {last}" if most else f"use {last}"


def without_body(send: Send) -> Send:
    """`send` for the answer to HEAD: the headers of the answer to GET, and no body."""

    async def headers_only(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return headers_only


async def describe(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer OPTIONS."""
    allow = scope["route_handler"].opt[ALLOW].encode()
    await send({"type": "http.response.start", "status": 204, "headers": [(b"allow", allow)]})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
