"""Every call of the SDK goes to a route, and every operation of a route has a call or is left out for a reason."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from mainspring.api.app import app_without_a_server
from mainspring.api.handlers import permissions_of
from mainspring.sdk.client import calls
from mainspring.sdk.client.async_client import AsyncClient
from mainspring.sdk.client.client import Client
from mainspring.sdk.client.core import Call
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.local_server import LocalServer

# Clients do not send calls for these. Streams and logs have methods of their own.
WITHOUT_A_CALL = {
    "callbacks.take": "for services that steps have called",
    "jobs.validate": "the SDK checks jobs itself when they are declared",
    "metrics.read": "for Prometheus",
    "nodes.list": "for the dashboard",
    "schema.read": "for generators of clients",
    "search.find": "for the dashboard",
    "session.answer": "for browsers",
    "session.begin": "for browsers",
    "session.create": "for browsers",
    "session.end": "for browsers",
    "session.providers": "for browsers",
    "session.read": "for browsers",
    "user.accept": "for browsers: it begins a session",
    "user.create_token": "for browsers: it needs the password",
    "user.password": "for browsers: it needs the password",
    "user.revoke_token": "for browsers; admins use tokens.revoke",
    "user.tenant": "for browsers: it changes the session",
    "stream.read": "Client.events",
    "worker.exchange": "the worker has a client of its own",
    "worker.gone": "the parent of a worker sends it",
    "worker.ship_logs": "the worker has a client of its own",
}
# The methods that send these calls have another name or do more.
WITHOUT_A_METHOD = {"submit", "add_job", "declare"}
# One call serves the three routes.
ALSO_CALLED = {"runs.act", "dead_letters.act"}
GIVEN: dict[str, dict[str, Any]] = {
    "submit": {"task": "t"},
    "submit_batch": {"jobs": [{"task": "t"}]},
    "emit_batch": {"events": [{"name": "e"}]},
    "act_on_many": {"target": "jobs", "verb": "pause"},
    "count_matching": {"target": "jobs", "verb": "pause"},
}


def built() -> dict[str, Call[Any]]:
    """Each call, with some value for each parameter that it needs."""
    return {
        name: function(**_arguments(name, function))
        for module in pkgutil.iter_modules(calls.__path__, f"{calls.__name__}.")
        for name, function in vars(import_module(module.name)).items()
        if inspect.isfunction(function) and not name.startswith("_") and function.__module__.endswith("_calls")
    }


def _arguments(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    needed = {
        one.name: _value(str(one.annotation))
        for one in inspect.signature(function).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    }
    return needed | GIVEN.get(name, {})


def _value(annotation: str) -> Any:
    if "When" in annotation or "Moment" in annotation:
        return "2030-01-01T00:00:00Z"
    if "Mapping" in annotation or "dict" in annotation:
        return {"task": "t"}
    return 1 if annotation == "int" else ["x"] if "list" in annotation or "Sequence" in annotation else "x"


def test_every_call_goes_to_a_route_and_every_operation_has_a_call() -> None:
    app = app_without_a_server()
    called = {app.table.find(call.path, call.method).handler.operation for call in built().values()}
    assert called | ALSO_CALLED | WITHOUT_A_CALL.keys() == permissions_of(app).keys()
    assert not called & WITHOUT_A_CALL.keys()


def test_a_call_is_found_by_its_name_in_the_module_that_has_it() -> None:
    for name in built():
        assert getattr(calls, name).__module__.startswith(calls.__name__)
    assert not hasattr(calls, "no_such_call")


def test_both_clients_have_a_method_for_every_call() -> None:
    for client in (Client, AsyncClient):
        assert not [name for name in built() if name not in WITHOUT_A_METHOD and not hasattr(client, name)], client


def test_every_route_of_a_box_is_a_route_of_a_server() -> None:
    app = app_without_a_server()
    engine = Engine({}, datetime(2030, 1, 1, tzinfo=UTC), 1, raise_errors=True)
    routes = list(LocalServer(engine, {}, frozenset())._routes)
    assert len(routes) > 20
    for route in routes:
        named = "upcoming" if route == "GET insights/{}" else "x"
        method, _, path = route.replace("{}", named).partition(" ")
        path = f"/{path}" if path == "healthz" else f"/v1/{path}"
        handler = app.table.find(path, method).handler
        assert handler.operation in permissions_of(app), route
