"""The operation that a route calls. Each handler names one: `operation="jobs.read"`. `check_routes` refuses an app with
an operation that is not in the permissions table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from mainspring.operations.access.permissions import PERMISSIONS

OPERATION = "operation"
# The framework adds OPTIONS handlers, which describe a route.
_DESCRIBE = "schema.read"


def operation_of(handler: Any) -> str:
    operation: str = handler.opt.get(OPERATION, _DESCRIBE)
    return operation


def routed_handlers(app: Litestar) -> Iterator[tuple[HTTPRoute, HTTPRouteHandler]]:
    """Every route with each of its handlers, without those that the framework adds."""
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        for handler in route.route_handlers:
            if handler.http_methods != {"OPTIONS"}:
                yield route, handler


def check_routes(app: Litestar) -> None:
    """Raise unless every handler names an operation that is in the permissions table."""
    for route, handler in routed_handlers(app):
        named = handler.opt.get(OPERATION)
        if named not in PERMISSIONS:
            problem = "the handler names no operation" if named is None else f"{named} is not in PERMISSIONS"
            raise RuntimeError(f"{sorted(handler.http_methods)} {route.path}: {problem}")
