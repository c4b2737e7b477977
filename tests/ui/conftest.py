"""One server and one browser for all browser tests.

Playwright runs an event loop in the thread that uses it, until it is stopped. Other tests of the process have loops of
their own in the main thread. So the browser, and each test that uses it, has another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page

from mainspring.api.page import FOLDER
from tests.ui.serving import CHROMIUM, browser, look, serving, sign_in

Open = Callable[..., Page]
_thread = ThreadPoolExecutor(1, "browser")


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    _thread.submit(pyfuncitem.obj, **given).result()
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser test takes three seconds of CPU: all of them are slow."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)
    missing = "chromium" if CHROMIUM is None else None if (FOLDER / "index.html").is_file() else "the built page"
    if missing is not None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=f"needs {missing}"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("ui") / "data") as client:
        yield client


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    stack = ExitStack()
    yield _thread.submit(stack.enter_context, browser()).result()
    _thread.submit(stack.close).result()


@pytest.fixture
def open_page(server: httpx.Client, chromium: Browser) -> Iterator[Open]:
    """Opens a page, signed in. Errors in the console, such as reports of the CSP, fail the test."""
    errors: list[str] = []
    contexts = []

    def opened(path: str = "/", *, phone: bool = False, dark: bool = False) -> Page:
        context = look(chromium, server, phone=phone, dark=dark)
        contexts.append(context)
        sign_in(context, server)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if _is_error(message) else None)
        page.goto("/ui" + path)
        return page

    def close() -> None:
        for context in contexts:
            context.close()

    yield opened
    _thread.submit(close).result()
    assert errors == []


# A part of the page that is not loaded, which the page tries again. It is loaded ahead when the pointer comes near.
_NOT_LOADED = "Failed to fetch dynamically imported module"


def _is_error(message: ConsoleMessage) -> bool:
    """A refusal by the server (4xx) is part of some flows, and the browser reports each."""
    told = message.text
    return message.type == "error" and not told.startswith("Failed to load resource") and _NOT_LOADED not in told
