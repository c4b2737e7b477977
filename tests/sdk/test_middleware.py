"""What an application puts around attempts and submissions: order, errors, sync and async tasks."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import mainspring.testing
from mainspring import Context, Mainspring, Retry, RunFailed

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("TENANT", default="none")


def app_with(seen: list[str]) -> Mainspring:
    app = Mainspring("around")

    @app.middleware
    def outer(ctx: Context) -> Iterator[None]:
        seen.append(f"outer {ctx.task} {ctx.attempt}")
        before = TENANT.set("acme")
        try:
            outcome: Any = yield
            seen.append(f"outer has {outcome}")
        except (ValueError, RuntimeError) as error:
            seen.append(f"outer has {error!r}")
        finally:
            TENANT.reset(before)

    @app.middleware
    def inner(_: Context) -> Iterator[None]:
        seen.append("inner begins")
        yield
        seen.append("inner ends")

    @app.task
    def plain() -> str:
        return f"plain for {TENANT.get()}"

    @app.task
    async def awaited(ctx: Context) -> str:
        return f"{ctx.task} for {TENANT.get()}"

    @app.task(retries=0)
    def fails() -> None:
        raise ValueError("no")

    @app.task(retries=0)
    async def stops() -> None:
        raise StopIteration

    return app


@pytest.mark.parametrize("name", ["plain", "awaited"])
def test_middlewares_are_around_the_task_the_first_one_outermost(name: str) -> None:
    seen: list[str] = []
    app = app_with(seen)
    with mainspring.testing.run(app) as box:
        handle = app.tasks[name].submit()
        box.run_pending()
        assert handle.result() == f"{name} for acme"
    assert seen == [f"outer {name} 1", "inner begins", "inner ends", f"outer has {name} for acme"]


@pytest.mark.parametrize(("name", "error"), [("fails", "ValueError"), ("stops", "RuntimeError")])
def test_an_error_that_a_middleware_does_not_pass_on_still_fails_the_attempt(name: str, error: str) -> None:
    seen: list[str] = []
    app = app_with(seen)
    with mainspring.testing.run(app) as box:
        handle = app.tasks[name].submit()
        box.run_pending()
        with pytest.raises(RunFailed, match=error):
            handle.result()
    assert seen[-1].startswith(f"outer has {error}") and "inner ends" not in seen


def test_a_middleware_decides_about_the_attempt_by_another_error() -> None:
    app = Mainspring()

    @app.middleware
    def busy_means_later(_: Context) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:
            raise Retry("the bank is busy", after=60) from error

    @app.task(retry={"max_attempts": 2})
    def charge(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionError
        return ctx.attempt

    with mainspring.testing.run(app) as box:
        handle = charge.submit()
        box.run_pending()
        assert handle.status() == "SCHEDULED"
        box.advance("1m")
        assert handle.result() == 2
        [run] = box.runs_of(charge)
        assert run.errors == ["Retry: the bank is busy"]


def test_a_middleware_that_fails_before_its_yield_fails_the_attempt_without_the_task() -> None:
    app, ran = Mainspring(), []

    @app.middleware
    def locked(_: Context) -> Iterator[None]:
        raise PermissionError("maintenance")
        yield

    @app.task(retries=0)
    def work() -> None:
        ran.append(1)

    with mainspring.testing.run(app) as box:
        handle = work.submit()
        box.run_pending()
        with pytest.raises(RunFailed, match="PermissionError: maintenance"):
            handle.result()
    assert ran == []


def test_an_async_middleware_waits_around_async_tasks_and_leaves_plain_functions_alone() -> None:
    app, seen = Mainspring(), []

    @app.middleware
    async def session(ctx: Context) -> AsyncIterator[None]:
        seen.append(f"opened for {ctx.task}")
        try:
            yield
            seen.append("committed")
        except ValueError:
            seen.append("rolled back")
            raise

    @app.task(retries=0)
    async def stores(good: bool) -> None:
        if not good:
            raise ValueError

    @app.task
    def plain() -> None: ...

    with mainspring.testing.run(app) as box:
        stores.submit(good=True)
        stores.submit(good=False)
        plain.submit()
        box.run_pending()
    assert sorted(seen) == ["committed", "opened for stores", "opened for stores", "rolled back"]


@pytest.mark.parametrize("yields", [0, 2])
def test_a_middleware_that_does_not_yield_once_is_named(yields: int) -> None:
    app = Mainspring()

    @app.middleware
    def strange(_: Context) -> Iterator[None]:
        for _ in range(yields):
            yield

    @app.task(retries=0)
    def work() -> None: ...

    with mainspring.testing.run(app) as box:
        handle = work.submit()
        box.run_pending()
        with pytest.raises(RunFailed, match=r"middleware .*strange"):
            handle.result()


def submitting_app(seen: list[Any]) -> Mainspring:
    app = Mainspring()

    @app.middleware(around="submission")
    def labelled(request: dict[str, Any]) -> Iterator[None]:
        request["labels"] = {**(request.get("labels") or {}), "request": "r1"}
        handle: Any = yield
        seen.append((request["task"], handle.job_id))

    @app.task
    def work(number: int) -> int:
        return number

    return app


def test_a_submission_is_changed_and_its_handle_is_seen() -> None:
    seen: list[Any] = []
    app = submitting_app(seen)
    work = app.tasks["work"]
    with mainspring.testing.run(app) as box:
        handle = work.options(labels={"team": "a"}).submit(number=1)
        box.run_pending()
        assert handle.result() == 1
        assert app.client.job(handle.job_id).labels == {"team": "a", "request": "r1"}
    assert seen == [("work", handle.job_id)]


@pytest.mark.anyio
async def test_an_async_submission_has_the_same_around_it() -> None:
    seen: list[Any] = []
    app = submitting_app(seen)
    async with mainspring.testing.run(app) as box:
        handle = await app.tasks["work"].submit_async(number=2)
        await box.run_pending_async()
        assert await handle.result() == 2
    assert seen == [("work", handle.job_id)]


def test_what_is_no_middleware_is_refused_where_it_is_declared() -> None:
    app = Mainspring()
    with pytest.raises(TypeError, match="no generator function"):
        app.middleware(lambda ctx: None)

    def without_a_parameter() -> Iterator[None]:
        yield

    with pytest.raises(TypeError, match=r"takes one parameter: def .*\(ctx\)"):
        app.middleware(without_a_parameter)

    async def waits(request: dict[str, Any]) -> AsyncIterator[None]:
        yield

    with pytest.raises(TypeError, match="submit\\(\\) cannot wait"):
        app.middleware(around="submission")(waits)
    with pytest.raises(ValueError, match="'attempt' or 'submission'"):
        app.middleware(around="jobs")(waits)  # type: ignore[call-overload]
