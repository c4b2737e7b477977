"""The operation that a route calls. A handler names one with `operation="jobs.read"`, or one for each verb at the end
of its path with `verbs={"pause": "jobs.pause"}`. `check_routes` refuses an app with an operation that is not in the
permissions table."""

from __future__ import annotations

from typing import Any

from litestar import Litestar
from litestar.routes import HTTPRoute

from mainspring.operations.access.permissions import PERMISSIONS

OPERATION = "operation"
VERBS = "verbs"
# The framework adds OPTIONS handlers, which describe a route.
_DESCRIBE = ("schema.read",)


def operations_of(handler: Any, path: str) -> tuple[str, ...]:
    """The operation that this request calls. All operations of the route if the path ends with an unknown verb."""
    operation = handler.opt.get(OPERATION)
    if operation is not None:
        return (operation,)
    verbs: dict[str, str] | None = handler.opt.get(VERBS)
    if verbs is None:
        return _DESCRIBE
    verb = path.replace(":", "/").rpartition("/")[2]
    return (verbs[verb],) if verb in verbs else tuple(verbs.values())


def check_routes(app: Litestar) -> None:
    """Raise unless every handler names operations that are in the permissions table."""
    for route in app.routes:
        for handler in route.route_handlers if isinstance(route, HTTPRoute) else ():
            if handler.http_methods == {"OPTIONS"}:
                continue
            named = [handler.opt[OPERATION]] if OPERATION in handler.opt else list(handler.opt.get(VERBS, {}).values())
            unknown = [name for name in named if name not in PERMISSIONS]
            if not named or unknown:
                raise RuntimeError(
                    f"{sorted(handler.http_methods)} {route.path}: "
                    + (f"{unknown} are not in PERMISSIONS" if unknown else "the handler names no operation")
                )
