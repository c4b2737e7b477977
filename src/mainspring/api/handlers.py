"""How the handlers of routes are declared: `@post("/v1/queues/{name:str}/pause", operation="queues.pause", ...)`.

A handler owns everything that is known of its route: the operation, the roles that may call it, how it treats a
narrowed token (reach.py), the verb, the body, the examples and the problems. Permissions, the reading of bodies and the
OpenAPI document are derived from it. Calls of the SDK, routes of the test box (tests/sdk/test_calls.py) and hints of
the command line (tests/cli/test_hints.py) are compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any, Protocol, get_args, get_type_hints

from mainspring.api.answers import Answer
from mainspring.api.bodies import Decode, body_of
from mainspring.api.masking import for_viewers
from mainspring.api.parameters import Parameter, parameters_of
from mainspring.api.reach import Reach, reaches
from mainspring.api.routing import Route, RouteTable
from mainspring.domain.narrowing import Narrowing
from mainspring.kernel.config import MAX_JOB_BYTES
from mainspring.operations.access.permissions import READERS, Roles

_IN_PATH = re.compile(r"\{(\w+):")


@dataclass(frozen=True, slots=True, eq=False)
class RouteHandler:
    """decode: how its body is read; None if it takes none. needs_body: whether that may not be empty. body: its type in
    the document, if that is not the type of `data`. Without roles it needs no token."""

    method: str
    paths: tuple[str, ...]
    function: Callable[..., Awaitable[Any]]
    operation: str
    roles: Roles
    parameters: tuple[Parameter, ...]
    takes_request: bool
    decode: Decode | None
    needs_body: bool
    summary: str = ""
    status_code: int = 200
    verb: str | None = None
    reach: Reach = Reach.REFUSED
    shows_payloads: bool = False
    payload_keys: bool = False
    request_max_body_size: int = MAX_JOB_BYTES
    answers: Mapping[int, Answer] | None = None
    problems: tuple[str, ...] = ()
    examples: Mapping[str, Any] | None = None
    body: Any = None

    @property
    def is_public(self) -> bool:
        return not self.roles


class HasRoutes(Protocol):
    """What has routes."""

    @property
    def table(self) -> RouteTable[RouteHandler]: ...


def _declare(
    method: str, path: str | list[str], *, operation: str, roles: Roles, decode: Decode | None = None, **options: Any
) -> Callable[[Callable[..., Awaitable[Any]]], RouteHandler]:
    """Declare a handler. `decode` reads its body, unless `body_of` does. `options`: of RouteHandler."""
    paths = (path,) if isinstance(path, str) else tuple(path)

    def declare(function: Callable[..., Awaitable[Any]]) -> RouteHandler:
        hints = get_type_hints(function)
        data = hints.get("data")
        structs = [one for one in get_args(data) if one is not NoneType] or [data]
        return RouteHandler(
            method, paths, for_viewers(function, roles), operation, roles,
            parameters_of(function, frozenset(_IN_PATH.findall(paths[0]))),
            takes_request="request" in hints,
            decode=decode or (None if data is None else body_of(structs[0])),
            needs_body=data is not None and NoneType not in get_args(data),
            **options,
        )  # fmt: skip

    return declare


get = partial(_declare, "GET")
post = partial(_declare, "POST", status_code=201)  # a verb says status_code=200
put = partial(_declare, "PUT")
patch = partial(_declare, "PATCH")
delete = partial(_declare, "DELETE")


async def _nothing() -> None:
    """The answer to OPTIONS follows from the table of routes."""


# What answers OPTIONS, on every route.
DESCRIBE = RouteHandler(
    "OPTIONS", (), _nothing, "schema.read", READERS, (), takes_request=False, decode=None, needs_body=False
)


def routed_handlers(app: HasRoutes) -> Iterator[tuple[Route[RouteHandler], RouteHandler]]:
    """Every route with each of its handlers."""
    for route in app.table.routes:
        for handler in route.handlers:
            yield route, handler


def check_routes(table: RouteTable[RouteHandler]) -> None:
    """Raise unless all handlers of an operation say the same of who may call it."""
    access: dict[str, object] = {}
    for route in table.routes:
        for one in route.handlers:
            own = (one.roles, one.reach, one.shows_payloads)
            if access.setdefault(one.operation, own) != own:
                raise RuntimeError(
                    f"{one.method} {route.path}: {one.operation} has other roles, or another reach, elsewhere"
                )


def permissions_of(app: HasRoutes) -> dict[str, Roles]:
    """The roles that may call each operation."""
    return {handler.operation: handler.roles for _, handler in routed_handlers(app)}


def operations_of_role(app: HasRoutes, role: str, narrowing: Narrowing | None = None) -> list[str]:
    """The operations that callers of this role, with a token that is narrowed like this, may call."""
    handlers = (handler for _, handler in routed_handlers(app) if role in handler.roles)
    return sorted({one.operation for one in handlers if narrowing is None or reaches(one, narrowing)})
