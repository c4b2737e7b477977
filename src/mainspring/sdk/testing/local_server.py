"""The local server of a box: answers the calls that a client would send to a server.

The calls are those of the client, with their JSON bodies. They pass through the same validation as in a server and fail
with the same messages.
"""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import unquote

import msgspec

from mainspring.domain.intake.declaration import TaskDeclaration
from mainspring.kernel.version import VERSION
from mainspring.sdk.client.core import Call, ServerAnswer
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.local_calendars import LocalCalendars
from mainspring.sdk.testing.local_jobs import LocalJobs
from mainspring.sdk.testing.local_runs import LocalRuns
from mainspring.sdk.testing.not_in_box import no_route
from mainspring.wire.runs import Health

T = TypeVar("T")


class LocalServer:
    """Answers calls. `known` contains what a worker of the application would declare about its tasks. `ignored` are the
    fields that are left out of jobs."""

    def __init__(self, engine: Engine, known: dict[str, TaskDeclaration], ignored: frozenset[str]) -> None:
        calendars = LocalCalendars(engine)
        jobs = LocalJobs(engine, known, calendars, ignored)
        self._routes = jobs.routes() | LocalRuns(engine, known).routes() | calendars.routes()
        self._routes["GET healthz"] = lambda *_: Health("ok", VERSION)

    def answer(self, call: Call[T]) -> T:
        """The result that a server would return. Errors are raised as the client would raise them."""
        route, named = _route(call.method, call.path)
        if route not in self._routes:
            raise no_route(route)
        found = self._routes[route](named, call)
        content = found.encode() if isinstance(found, str) else msgspec.json.encode(found)
        return call.read(ServerAnswer(200, content, {}))


def _route(method: str, path: str) -> tuple[str, str]:
    """The route and the id of a call, such as ("POST jobs/{}:pause", "report")."""
    things, *rest = path.removeprefix("/v1").strip("/").split("/")
    if not rest:
        return f"{method} {things}", ""
    named, colon, verb = rest[0].partition(":")  # a colon in the name itself is encoded as %3A
    return f"{method} {'/'.join([things, '{}' + colon + verb, *rest[1:]])}", unquote(named)
