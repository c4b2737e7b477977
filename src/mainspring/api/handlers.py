"""How the handlers of routes are declared: `@post("/v1/queues/{name:str}/pause", operation="queues.pause", ...)`.

A handler owns everything that is known of its route: the operation, the roles that may call it, how it treats a
narrowed token (reach.py), the verb, the body, the examples and the problems. Permissions, the reading of bodies and the
OpenAPI document are derived from it. Calls of the SDK, routes of the test box (tests/sdk/test_calls.py) and hints of
the command line (tests/cli/test_hints.py) are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, get_args, get_type_hints

import litestar
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from mainspring.api.bodies import Body, body_of
from mainspring.api.masking import for_viewers
from mainspring.api.reach import reach_of, reaches, shows_payloads
from mainspring.domain.narrowing import Narrowing
from mainspring.operations.access.permissions import READERS, Roles

OPERATION = "operation"
ROLES = "roles"
# The framework adds OPTIONS handlers, which describe a route.
_DESCRIBE = "schema.read"

Declare = Callable[[Callable[..., Any]], HTTPRouteHandler]


def get(path: str | list[str], *, operation: str, roles: Roles, **options: Any) -> Declare:
    """Declare a handler that reads."""
    return _declare(litestar.get, path, operation, roles, options)


def post(
    path: str | list[str], *, operation: str, roles: Roles, dto: type[Body[Any]] | None = None, **options: Any
) -> Declare:
    """Declare a handler of a verb, or one that creates something. `dto` reads its body, unless `body_of` does."""
    return _declare(litestar.post, path, operation, roles, options, dto)


def put(path: str, *, operation: str, roles: Roles, dto: type[Body[Any]] | None = None, **options: Any) -> Declare:
    """Declare a handler that replaces something."""
    return _declare(litestar.put, path, operation, roles, options, dto)


def patch(path: str, *, operation: str, roles: Roles, dto: type[Body[Any]] | None = None, **options: Any) -> Declare:
    """Declare a handler that changes a part of something."""
    return _declare(litestar.patch, path, operation, roles, options, dto)


def delete(path: str, *, operation: str, roles: Roles, **options: Any) -> Declare:
    """Declare a handler that removes something."""
    return _declare(litestar.delete, path, operation, roles, options)


def _declare(
    base: Callable[..., Any],
    path: str | list[str],
    operation: str,
    roles: Roles,
    options: dict[str, Any],
    dto: type[Body[Any]] | None = None,
) -> Declare:
    def declare(function: Callable[..., Any]) -> HTTPRouteHandler:
        body = dto or _body_of(function)
        bodies = {} if body is None else {"dto": body, "return_dto": None}
        handler: HTTPRouteHandler = base(path, **{OPERATION: operation, ROLES: roles}, **bodies, **options)(
            for_viewers(function, roles)
        )
        return handler

    return declare


def _body_of(function: Callable[..., Any]) -> type[Body[Any]] | None:
    """How the body is read that the handler takes as `data`. None if it takes none."""
    data = get_type_hints(function).get("data")
    if data is None:
        return None
    [struct] = [one for one in get_args(data) if one is not NoneType] or [data]
    return body_of(struct)


def operation_of(handler: Any) -> str:
    operation: str = handler.opt.get(OPERATION, _DESCRIBE)
    return operation


def roles_of(handler: Any) -> Roles:
    """The roles that may call it. Empty if it needs no token."""
    roles: Roles = handler.opt.get(ROLES, READERS)
    return roles


def is_public(handler: Any) -> bool:
    """Whether it needs no token."""
    return not roles_of(handler)


def routed_handlers(app: Litestar) -> Iterator[tuple[HTTPRoute, HTTPRouteHandler]]:
    """Every route with each of its handlers, without those that the framework adds."""
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        for handler in route.route_handlers:
            if handler.http_methods != {"OPTIONS"}:
                yield route, handler


def check_routes(app: Litestar) -> None:
    """Raise unless every handler names its operation and roles. All handlers of an operation say the same of who may
    call it."""
    access: dict[str, object] = {}
    for route, handler in routed_handlers(app):
        where = f"{sorted(handler.http_methods)} {route.path}"
        if OPERATION not in handler.opt or ROLES not in handler.opt:
            raise RuntimeError(f"{where}: the handler names no operation and roles")
        operation = operation_of(handler)
        own = (roles_of(handler), reach_of(handler), shows_payloads(handler))
        if access.setdefault(operation, own) != own:
            raise RuntimeError(f"{where}: {operation} has other roles, or another reach, elsewhere")


def permissions_of(app: Litestar) -> dict[str, Roles]:
    """The roles that may call each operation."""
    return {operation_of(handler): roles_of(handler) for _, handler in routed_handlers(app)}


def operations_of_role(app: Litestar, role: str, narrowing: Narrowing | None = None) -> list[str]:
    """The operations that callers of this role, with a token that is narrowed like this, may call."""
    handlers = (handler for _, handler in routed_handlers(app) if role in roles_of(handler))
    return sorted({operation_of(one) for one in handlers if narrowing is None or reaches(one, narrowing)})
