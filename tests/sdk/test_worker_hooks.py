"""The start and stop hooks of an application: their order, their errors and their time."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

import mainspring.testing
from mainspring import Mainspring
from mainspring.sdk.app.worker_hooks import HookFailed

pytestmark = pytest.mark.anyio


def app_with(seen: list[str], *, fails: str = "") -> Mainspring:
    app = Mainspring()

    def note(word: str) -> None:
        seen.append(word)
        if word == fails:
            raise ConnectionError("nobody there")

    @app.on_worker_start
    def open_files() -> None:
        note("open files")

    @app.on_worker_stop
    def close_files() -> None:
        note("close files")

    @app.on_worker_start
    async def open_pool() -> None:
        await asyncio.sleep(0)
        note("open pool")
        app.state.pool = "a pool"

    @app.on_worker_stop
    async def close_pool() -> None:
        await asyncio.sleep(0)
        note("close pool")

    @app.task
    async def uses() -> str:
        seen.append("run")
        return str(app.state.pool)

    return app


async def test_they_start_in_order_and_stop_in_the_reverse_order() -> None:
    seen: list[str] = []
    app = app_with(seen)
    await app.hooks.start()
    assert await app.hooks.stop() == []
    assert seen == ["open files", "open pool", "close pool", "close files"]


async def test_a_start_hook_that_fails_is_named_and_the_next_one_is_not_run() -> None:
    seen: list[str] = []
    app = app_with(seen, fails="open files")
    with pytest.raises(
        HookFailed, match=r"the start hook .*open_files failed: ConnectionError: nobody there"
    ) as caught:
        await app.hooks.start()
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert seen == ["open files"]


async def test_a_stop_hook_that_fails_keeps_none_from_running() -> None:
    seen: list[str] = []
    [failure] = await app_with(seen, fails="close pool").hooks.stop()
    assert "close_pool failed: ConnectionError" in str(failure)
    assert seen == ["close pool", "close files"]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_stop_hooks_that_do_not_end_are_left_behind(kind: str) -> None:
    app = Mainspring()
    never, reached = threading.Event(), []

    @app.on_worker_stop
    def last() -> None:
        reached.append("last")

    if kind == "async":
        app.on_worker_stop(asyncio.Event().wait)
    else:
        app.on_worker_stop(never.wait)
    failures = await app.hooks.stop(seconds=0.05)
    assert "did not end within 0.05 s" in str(failures[0])
    never.set()


async def test_a_stop_hook_that_ignores_that_it_is_cancelled_is_left_behind() -> None:
    app = Mainspring()
    release = asyncio.Event()

    @app.on_worker_stop
    async def stubborn() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    [failure] = await app.hooks.stop(seconds=0.01)
    assert "stubborn did not end within 0.01 s" in str(failure)
    release.set()


async def test_a_hook_that_raises_a_cancellation_of_its_own_has_failed() -> None:
    app = Mainspring()

    async def cancelled() -> None:
        raise asyncio.CancelledError

    app.on_worker_start(cancelled)
    app.on_worker_stop(cancelled)
    with pytest.raises(HookFailed, match=r"the start hook .*cancelled failed: CancelledError"):
        await app.hooks.start()
    [failure] = await app.hooks.stop()
    assert "cancelled failed: CancelledError" in str(failure)


async def test_plain_hooks_run_in_a_thread_and_coroutine_functions_on_the_loop() -> None:
    app, where = Mainspring(), []

    @app.on_worker_start
    def plain() -> None:
        where.append(threading.current_thread() is threading.main_thread())

    @app.on_worker_start
    async def on_the_loop() -> None:
        where.append(threading.current_thread() is threading.main_thread())

    await app.hooks.start()
    assert where == [False, True]


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration()])
async def test_whatever_a_plain_hook_raises_is_an_error(error: BaseException) -> None:
    app = Mainspring()

    @app.on_worker_start
    def leaves() -> None:
        raise error

    with pytest.raises(HookFailed, match=type(error).__name__):
        await app.hooks.start()


def test_what_cannot_be_called_is_refused_at_once() -> None:
    app = Mainspring()

    def wants(pool: Any) -> None: ...

    def yields() -> Any:
        yield

    async def yields_too() -> Any:
        yield

    for hook, words in ((wants, "has parameters"), (yields, "is a generator"), (yields_too, "is a generator")):
        with pytest.raises(TypeError, match=words):
            app.on_worker_start(hook)
    with pytest.raises(TypeError, match="without brackets"):
        app.on_worker_stop(None)  # type: ignore[type-var]
    assert app.hooks.starts == app.hooks.stops == []


def test_a_box_runs_them_around_the_test() -> None:
    seen: list[str] = []
    app = app_with(seen)
    with mainspring.testing.run(app) as box:
        assert seen == ["open files", "open pool"]
        assert box.result(box.client.submit(task="uses")) == "a pool"
    assert seen == ["open files", "open pool", "run", "close pool", "close files"]


async def test_an_async_test_opens_its_box_with_async_with() -> None:
    seen: list[str] = []
    app = app_with(seen)
    async with mainspring.testing.run(app) as box:
        assert seen == ["open files", "open pool"]
        await box.async_client.submit(task="uses")
        [run] = await box.run_pending_async()
        assert run.result == "a pool"
    assert seen == ["open files", "open pool", "run", "close pool", "close files"]


async def test_in_a_plain_box_of_an_async_test_they_start_with_the_first_run() -> None:
    seen: list[str] = []
    app = app_with(seen)
    app.hooks.stops.clear()
    with mainspring.testing.run(app) as box:
        assert seen == []
        box.client.submit(task="uses")
        await box.run_pending_async()
    assert seen == ["open files", "open pool", "run"]


def test_a_start_hook_that_fails_in_a_box_fails_the_test_and_is_cleaned_up() -> None:
    seen: list[str] = []
    app = app_with(seen, fails="open pool")
    own = app.client
    with pytest.raises(HookFailed, match="open_pool"), mainspring.testing.run(app):
        pytest.fail("the box is not entered")
    assert seen == ["open files", "open pool", "close pool", "close files"]
    assert app.client is own


def test_errors_of_stop_hooks_fail_the_test() -> None:
    app = app_with([], fails="close files")
    with pytest.raises(HookFailed, match="close_files"), mainspring.testing.run(app):
        pass
