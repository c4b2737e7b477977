"""The table of routes: which handler answers a method at a path.

A verb is the last segment of its handler's path, and the handler says so: `verb="pause"` at `/{job_id:str}/pause`.
Clients write `/v1/jobs/j:pause`, which is also how the OpenAPI document shows it. `/v1/jobs/j/pause` means the same.
HEAD is answered wherever GET is, and OPTIONS everywhere.

A name in a path may contain any character. An encoded slash, colon or percent sign is part of the name: the path is
routed with these still encoded, and names are decoded afterwards.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

from mainspring.domain.errors import MainspringError, NotFound
from mainspring.domain.texts import shown

_LONGEST_TEXT = 200  # of a path in a response
_GAP = re.compile(r"\{(\w+):str\}")
_SLASHES = re.compile("//+")


class Routable(Protocol):
    """What the table asks of a handler."""

    @property
    def method(self) -> str: ...
    @property
    def paths(self) -> Sequence[str]: ...
    @property
    def verb(self) -> str | None: ...


H = TypeVar("H", bound=Routable)


class MethodNotAllowed(MainspringError):
    """allow: the methods that the address has."""

    code = "method_not_allowed"

    def __init__(self, detail: str, allow: str, hint: str) -> None:
        super().__init__(detail, hint=hint)
        self.allow = allow


class Router:
    """Handlers below a path."""

    def __init__(self, path: str, route_handlers: Sequence[Any]) -> None:
        self.path = path
        self.handlers = route_handlers


@dataclass(eq=False, slots=True)
class Route(Generic[H]):
    """A path such as `/v1/jobs/{job_id}`, with the handler of each method. by_method: with HEAD and OPTIONS."""

    path: str
    names: tuple[str, ...]
    handlers: list[H] = field(default_factory=list)
    by_method: dict[str, H] = field(default_factory=dict)

    @property
    def allow(self) -> str:
        return ", ".join(sorted(self.by_method))


@dataclass(slots=True)
class _Node(Generic[H]):
    """What may follow a part of a path: segments, or any name. route: of the path that ends here."""

    segments: dict[str, _Node[H]] = field(default_factory=dict)
    any_name: _Node[H] | None = None
    route: Route[H] | None = None


class Found(NamedTuple, Generic[H]):
    """path: without superfluous slashes."""

    route: Route[H]
    handler: H
    path: str
    names: dict[str, str]


class RouteTable(Generic[H]):
    """`describe` answers OPTIONS."""

    def __init__(self, handlers: Iterable[H | Router], describe: H) -> None:
        self._root: _Node[H] = _Node()
        self._describe = describe
        self._plain: dict[str, Route[H]] = {}  # those without a name, which are most of what workers and clients call
        self._verbs: dict[str, dict[str, str]] = defaultdict(dict)  # "/v1/jobs" -> {"run-now": "runNow", ...}
        self.routes: list[Route[H]] = []
        for one in handlers:
            prefix, several = (one.path, one.handlers) if isinstance(one, Router) else ("", [one])
            for handler in several:
                for path in handler.paths:
                    self._add(f"{prefix}{path}", handler)

    def _add(self, path: str, handler: H) -> None:
        names = tuple(_GAP.findall(path))
        path = _GAP.sub(r"{\1}", path).rstrip("/")
        node = self._root
        for segment in path.split("/")[1:]:
            if segment.startswith("{"):
                node.any_name = node = node.any_name or _Node()
            else:
                node = node.segments.setdefault(segment, _Node())
        if node.route is None:
            node.route = Route(path, names, by_method={"OPTIONS": self._describe})
            self.routes.append(node.route)
            if not names:
                self._plain[path] = node.route
        if handler.method in node.route.by_method:
            raise RuntimeError(f"{handler.method} {path} has two handlers")
        node.route.handlers.append(handler)
        node.route.by_method[handler.method] = handler
        if handler.method == "GET":
            node.route.by_method["HEAD"] = handler
        if handler.verb is not None:
            noun, _, verb = path.rsplit("/", 2)
            self._verbs[noun][verb] = handler.verb

    def find(self, path: str, method: str) -> Found[H]:
        """Raises NotFound or MethodNotAllowed."""
        plain = self._plain.get(path)
        if plain is not None and (handler := plain.by_method.get(method)) is not None:
            return Found(plain, handler, path, {})
        asked, path = path, "/" + _SLASHES.sub("/", path.strip("/"))
        noun, _, last = path.rpartition("/")
        known = self._verbs.get(noun, {})
        subject, _, verb = last.rpartition(":")
        if ":" not in last and method == "POST":
            subject, _, verb = last.rpartition("%3A")  # some clients encode every colon; a POST to a name is a verb
        if subject and verb in known:
            path, known = f"{noun}/{subject}/{verb}", {}
        elif known and verb != last and method == "POST":
            raise _no_such_verb(verb, known)
        route, values = self._walk(path)
        if route is None and method == "POST" and "%3A" in last:
            route, values = self._walk(f"{noun}/{last.replace('%3A', ':')}")
        if route is None:
            if method == "POST" and (meant := self._verbs.get(noun.rpartition("/")[0])):
                raise _no_such_verb(last, meant)
            raise self._no_such_route(asked)
        handler = route.by_method.get(method)
        if handler is None:
            hint = f"allowed are {route.allow}" + (f"; {_use(known)}" if known and method == "POST" else "")
            raise MethodNotAllowed(f"{method} is not allowed here", route.allow, hint)
        if "%" in path:
            values = [unquote(value) for value in values]
        return Found(route, handler, path, dict(zip(route.names, values, strict=True)))

    def _walk(self, path: str) -> tuple[Route[H] | None, list[str]]:
        node, values = self._root, list[str]()
        for segment in path.split("/"):
            if not segment:
                continue
            following = node.segments.get(segment)
            if following is None:
                if node.any_name is None:
                    return None, values
                following = node.any_name
                values.append(segment)
            node = following
        return node.route, values

    def _no_such_route(self, path: str) -> NotFound:
        hint = "GET /schema/openapi.json lists every route"
        if len(path) <= _LONGEST_TEXT and (near := nearest(path.rstrip("/"), [route.path for route in self.routes])):
            hint = f"did you mean {near}?"
        return NotFound(f"there is no {path[:_LONGEST_TEXT]}", code="no_such_route", hint=hint)


def public_path(route: Route[H], handler: H) -> str:
    """The path as clients write it, with the verb after a colon."""
    noun, _, last = route.path.rpartition("/")
    return f"{noun}:{last}" if handler.verb else route.path


def routable(raw: bytes) -> str:
    """The path with everything decoded that has no meaning in it."""
    path = raw.decode("ascii", "replace")
    return "/".join(":".join(map(_decoded, segment.split(":"))) for segment in path.split("/"))


def _decoded(part: str) -> str:
    return unquote(part).replace("%", "%25").replace("/", "%2F").replace(":", "%3A")


def _no_such_verb(verb: str, known: Mapping[str, str]) -> NotFound:
    return NotFound(f"there is no verb {shown(verb)} here", code="no_such_route", hint=_use(known))


def _use(verbs: Mapping[str, str]) -> str:
    *most, last = (f":{verb}" for verb in dict.fromkeys(verbs.values()))
    return f"use {', '.join(most)} or {last}" if most else f"use {last}"


def nearest(path: str, templates: Iterable[str]) -> str | None:
    """The route that is meant by a path that does not exist. Only routes with as many segments are compared: anybody
    may ask."""
    parts = path.split("/")
    templates = list(templates)
    if shorter := _without_first(parts, templates):
        return shorter
    filled = {_filled(one, parts): one for one in templates if one.count("/") == len(parts) - 1}
    near = get_close_matches(path, filled, n=1, cutoff=0.85)
    return filled[near[0]] if near else None


def _without_first(parts: list[str], templates: list[str]) -> str | None:
    """The route that the path has without its first noun: /v1/notifications/channels/x."""
    if len(parts) < 4:
        return None
    fewer = [*parts[:2], *parts[3:]]
    path = "/".join(fewer)
    return next(
        (
            one
            for one in templates
            if one.count("/") == len(fewer) - 1 and one.split("/")[2:3] == fewer[2:3] and _filled(one, fewer) == path
        ),
        None,
    )


def _filled(template: str, parts: list[str]) -> str:
    """The path of a route, with the names of the request in place of its parameters."""
    segments = zip(template.split("/"), parts, strict=True)
    return "/".join(part if segment.startswith("{") else segment for segment, part in segments)
