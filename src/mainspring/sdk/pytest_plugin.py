"""The pytest fixtures `mainspring_box` and `mainspring_server`. Every pytest run loads this module, so imports happen
inside the fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mainspring.sdk.app.app import Mainspring
    from mainspring.sdk.testing import Box
    from mainspring.sdk.testing.real_server import RealServer, TestServer


@pytest.fixture
def mainspring_box() -> Iterator[Callable[..., Box]]:
    """`mainspring_box(app, start="2026-01-01T00:00:00Z")` returns a `mainspring.testing.Box`. It is closed after the
    test.

    The arguments are those of `mainspring.testing.run`.
    """
    with ExitStack() as boxes:

        def opened(app: Mainspring, **settings: Any) -> Box:
            from mainspring.sdk.testing import run

            return boxes.enter_context(run(app, **settings))

        yield opened


@pytest.fixture(scope="session")
def _mainspring_processes() -> Iterator[RealServer]:
    from mainspring.sdk.testing.real_server import RealServer

    server = RealServer()
    yield server
    server.close()


@pytest.fixture
def mainspring_server(_mainspring_processes: RealServer) -> Iterator[Callable[[Mainspring | str], TestServer]]:
    """`mainspring_server(app)` returns a `TestServer`: a real server with a real worker for this application, on the
    embedded PostgreSQL. The application submits to it until the test ends.

    The processes start with the first call. All tests of the session share them, and the jobs in them.
    """
    with ExitStack() as servers:

        def opened(app: Mainspring | str) -> TestServer:
            return servers.enter_context(_mainspring_processes.serving(app))

        yield opened
