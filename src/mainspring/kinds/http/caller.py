"""Makes the calls of http tasks. address_guard.py decides which addresses may be called."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kinds.http import KIND
from mainspring.kinds.http.address_guard import AddressGuard, AddressRefused
from mainspring.kinds.http.answer import HttpAnswer, accepts, ending_of
from mainspring.kinds.http.call import HttpCall
from mainspring.kinds.http.checks import http_in
from mainspring.kinds.http.connection import TransportError
from mainspring.kinds.http.network import HttpConnections, Resolve
from mainspring.kinds.http.request import REDIRECTS, BadAddress, HttpRequest, first_request
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import Cause, ResourceLimits
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, Execute, OpenLog, ending_after_stop, failed
from mainspring.worker.execution.run_secrets import MissingSecret

_CONNECT_SECONDS = 10.0
_LATER = 202
_MOST_REDIRECTS = 5
_BODY_BYTES = 1024 * 1024
_MOST_BODY_BYTES = 16 * 1024 * 1024
_ALIEN_LIMITS = ("memory", "cpu", "processes", "files", "disk")


class HttpExecutor:
    """A call is a coroutine of the worker that ends when it is cancelled: the connection is closed. A request that the
    called service has already received cannot be taken back."""

    killable = True
    isolates = True
    has_processes = False

    def __init__(
        self,
        guard: AddressGuard,
        *,
        open_log: OpenLog | None = None,
        resolve: Resolve | None = None,
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._open_log = open_log
        self._connections = HttpConnections(guard, resolve=resolve, clock=clock)
        self._calls: set[asyncio.Task[Any]] = set()

    def offers(self) -> dict[str, Execute]:
        return {KIND.name: self.execute}

    def kill_all(self) -> None:
        for call in self._calls:
            call.cancel()

    def close(self) -> None:
        """Close idle connections."""
        self._connections.close()

    async def execute(self, attempt: Attempt) -> AttemptEnding:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        attempt.kill = partial(_cancel, task)
        try:
            try:
                ending = await self._call(attempt)
            except asyncio.CancelledError:
                ending = failed("the call was interrupted by its worker")
            if attempt.stopping is not None:
                ending = ending_after_stop(attempt)
            if attempt.log is not None and not attempt.fenced:
                with suppress(asyncio.CancelledError):  # cancelled again: do not wait for the log
                    await attempt.log.finish()
        finally:
            attempt.kill = None
            self._calls.discard(task)
        return ending

    async def _call(self, attempt: Attempt) -> AttemptEnding:
        order = attempt.order
        try:
            call = _call_of(order)
            if order.callback == "":
                return failed("no service can call back: the servers have no --public-url", retry=False)
            limit = _body_limit(order)
            answer = await self._follow(attempt, call, first_request(call, order), limit)
        except (AddressRefused, BadAddress) as refusal:
            self._note(attempt, f"not called: {refusal}")
            return failed(str(refusal), retry=False, cause=Cause(errors=[type(refusal).__name__]))
        except (InvalidInput, MissingSecret) as error:
            return failed(str(error), retry=False)
        except _CallFailed as failure:
            return failed(str(failure), cause=Cause(errors=failure.errors))
        ending = await ending_of(answer, call.success, self._clock.wall())
        if order.callback is not None and answer.status == _LATER and ending.status == "SUCCESS":
            return AttemptEnding("FAILED", "the service answers later", retry=False, callback=True)
        return ending

    async def _follow(self, attempt: Attempt, call: HttpCall, request: HttpRequest, limit: int) -> HttpAnswer:
        """The last answer of a chain of redirects. Each address is checked like the first one."""
        wanted = call.success.status if call.success is not None else []
        came_from = ""
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                answer = await self._ask(attempt, request, limit)
            except AddressRefused as refusal:
                raise AddressRefused(f"{refusal}{came_from}") from None
            location = answer.headers.get("location")
            if (
                not call.follow_redirects
                or answer.status not in REDIRECTS
                or location is None
                or accepts(wanted, answer.status)  # the job expects this redirect
            ):
                return answer
            came_from = f" (redirected there by {request.where})"
            request = request.redirected(answer.status, location)
        raise BadAddress(f"more than {_MOST_REDIRECTS} redirects; the last one was to {request.where}")

    async def _ask(self, attempt: Attempt, request: HttpRequest, limit: int) -> HttpAnswer:
        """One request of the chain."""
        order = attempt.order
        started = self._clock.monotonic()
        try:
            connection = await self._connections.take(
                request.origin,
                min(_CONNECT_SECONDS, order.timeout),
                # A server may close an idle connection while the request is written. A run with one attempt avoids
                # that.
                fresh=order.max_attempts - order.losses - order.snoozes == 1,
            )
            try:
                received = await connection.ask(
                    request.method, request.url.raw_path, request.head(), request.content, limit
                )
            finally:
                self._connections.put(connection)
        except TransportError as error:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self._note(attempt, f"{request.method} {request.where} -> {said} after {self._ms(started)}")
            raise _CallFailed(f"{request.method} {request.where}: {said}", _class_names(error)) from None
        except asyncio.CancelledError:
            self._note(attempt, f"{request.method} {request.where} -> interrupted after {self._ms(started)}")
            raise
        if attempt.redactor is not None:  # before it is cut
            received.body = attempt.redactor.data(received.body, cut=received.cut)
        size = f"{len(received.body)} bytes" + (" and more" if received.cut else "")
        self._note(attempt, f"{request.method} {request.where} -> {received.status} in {self._ms(started)}, {size}")
        return HttpAnswer(request.method, request.where, received)

    def _ms(self, started: float) -> str:
        return f"{(self._clock.monotonic() - started) * 1000:.0f} ms"

    def _note(self, attempt: Attempt, line: str) -> None:
        if self._open_log is not None:
            self._open_log(attempt).write(line.encode("utf-8", "replace") + b"\n")


class _CallFailed(Exception):
    """No answer arrived; another attempt may get one."""

    def __init__(self, message: str, errors: list[str]) -> None:
        super().__init__(message)
        self.errors = errors


def _call_of(order: RunOrder) -> HttpCall:
    """The payload overrides the setup, because a replay may have changed it."""
    call = None
    if (payload := bytes(memoryview(order.payload))) not in (b"", b"null"):
        call = http_in(payload.decode())
    if call is None and order.setup is not None:
        call = order.setup.http
    if call is None:
        raise InvalidInput('http: an http run needs a call such as {"url": "https://example.com/hook"}', field="http")
    return call


def _body_limit(order: RunOrder) -> int:
    limits = (order.setup.limits if order.setup is not None else None) or ResourceLimits()
    for name in _ALIEN_LIMITS:
        if getattr(limits, name) is not None:
            raise InvalidInput(f"limits.{name} has no effect on an http task", field=f"limits.{name}")
    return _BODY_BYTES if limits.output is None else min(limits.output, _MOST_BODY_BYTES)


def _class_names(error: Exception) -> list[str]:
    """The class of the error and its bases, for retry rules: ConnectError, NetworkError, TransportError."""
    return [kind.__name__ for kind in type(error).__mro__ if kind not in (Exception, BaseException, object)]


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
