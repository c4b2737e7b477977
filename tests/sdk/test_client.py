"""The sync and the async client, with a fake transport."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import uvloop

from mainspring import Mainspring
from mainspring.domain.errors import Conflict, Unavailable
from mainspring.kernel.clock import ManualClock
from mainspring.sdk.client import async_client as async_client_module
from mainspring.sdk.client import client as client_module
from mainspring.sdk.client.async_client import AsyncClient
from mainspring.sdk.client.client import Client
from tests.sdk.wire_samples import job, problem, run

Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler, **settings: Any) -> Client:
    return Client("http://127.0.0.1:1", "secret", transport=httpx.MockTransport(handler), **settings)


def answers(*outcomes: httpx.Response | Exception) -> tuple[Handler, list[httpx.Request]]:
    """A server that returns these responses one by one and records the requests."""
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        outcome = outcomes[len(asked) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return handle, asked


def created() -> httpx.Response:
    return httpx.Response(201, json={"job_id": "j1"})


def busy() -> httpx.Response:
    return httpx.Response(503, headers={"retry-after": "0"}, json=problem(503, "unavailable"))


def test_both_faces_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(face: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in vars(face).items()
            if callable(value) and not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)
    assert {"submit", "add_job", "submit_batch", "why", "run_now", "dead_letters", "health"} <= methods(Client).keys()


def test_the_token_and_the_body_go_as_the_server_wants_them() -> None:
    handle, asked = answers(created())
    assert client(handle).submit(task="hello", payload={"name": "you"}).job_id == "j1"
    assert asked[0].headers["authorization"] == "Bearer secret"
    assert asked[0].headers["content-type"] == "application/json"
    assert json.loads(asked[0].content)["payload"] == {"name": "you"}


def test_a_submission_survives_a_busy_and_a_broken_server_under_one_key() -> None:
    handle, asked = answers(busy(), httpx.ReadError("reset"), created())
    assert client(handle).submit(task="hello").job_id == "j1"
    assert len({json.loads(request.content)["idempotency_key"] for request in asked}) == 1


def test_run_now_is_not_sent_twice_when_its_answer_is_lost() -> None:
    handle, asked = answers(httpx.ReadTimeout("late"))
    with pytest.raises(Unavailable):
        client(handle).run_now("report")
    assert len(asked) == 1


def test_run_now_is_sent_again_when_nobody_was_there() -> None:
    handle, asked = answers(
        httpx.ConnectError("refused"), httpx.Response(202, json={"run_id": "r1", "job_id": "report"})
    )
    assert client(handle).run_now("report").run_id == "r1"
    assert len(asked) == 2


def test_a_server_that_stays_away_is_unavailable() -> None:
    def nobody(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    with pytest.raises(Unavailable, match="connection refused"):
        client(nobody, patience=0.0).health()


def test_a_refused_connection_fails_within_two_seconds_and_names_address_and_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A real socket that nobody listens at, on a clock of the test."""
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    begun = clock.monotonic()
    for module in (client_module, async_client_module):
        monkeypatch.setattr(module, "_CLOCK", clock)
    monkeypatch.setattr(client_module.time, "sleep", clock.advance)

    async def advance(seconds: float) -> None:
        clock.advance(seconds)

    monkeypatch.setattr(async_client_module.asyncio, "sleep", advance)
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        address = f"http://127.0.0.1:{closed_soon.getsockname()[1]}"
    app = Mainspring(url=address, token="secret")

    @app.task
    def hello() -> None: ...

    async def submit() -> None:
        await hello.submit_async()

    for call in (hello.submit, lambda: asyncio.run(submit()), lambda: Client(address, "secret").jobs()):
        with pytest.raises(Unavailable) as caught:
            call()
        assert 0.5 < clock.monotonic() - begun <= 2
        begun = clock.monotonic()
        assert address in caught.value.detail
        assert caught.value.hint is not None and "mainspring up" in caught.value.hint


def test_a_guarded_change_names_the_version() -> None:
    handle, asked = answers(httpx.Response(200, json=job(version=4)))
    assert client(handle).update_job("report", if_version=3, priority="high").version == 4
    assert (asked[0].method, asked[0].headers["if-match"]) == ("PATCH", '"3"')
    assert json.loads(asked[0].content) == {"priority": "high"}


def test_a_server_that_makes_no_progress_says_so_instead_of_raising() -> None:
    handle, asked = answers(httpx.Response(503, json={"status": "not ready", "checks": {"database": "unavailable"}}))
    assert client(handle).readiness().checks == {"database": "unavailable"}
    assert len(asked) == 1


def test_a_conflict_is_raised_as_such() -> None:
    handle, _ = answers(httpx.Response(409, json=problem(409, "job_exists", "taken")))
    with pytest.raises(Conflict, match="taken"):
        client(handle).submit(task="t", job_id="report")


def test_all_jobs_goes_through_every_page() -> None:
    handle, asked = answers(
        httpx.Response(200, json={"jobs": [job(job_id="a")], "next": "c1"}),
        httpx.Response(200, json={"jobs": [job(job_id="b")], "next": None}),
    )
    assert [found.job_id for found in client(handle).all_jobs(queue="heavy")] == ["a", "b"]
    assert dict(asked[1].url.params) == {"queue": "heavy", "cursor": "c1"}


def test_the_runs_of_a_job_come_with_the_cursor_of_the_link_header() -> None:
    link = '</v1/jobs/report/runs?cursor=c1>; rel="next"'
    handle, _ = answers(httpx.Response(200, json=[run()], headers={"link": link}))
    page = client(handle).job_runs("report", limit=1)
    assert (len(page.runs), page.next) == (1, "c1")


def test_the_async_face_has_the_same_manners() -> None:
    handle, asked = answers(
        busy(),
        created(),
        httpx.Response(200, json={"runs": [run(run_id="a")], "next": "c1"}),
        httpx.Response(200, json={"runs": [run(run_id="b")]}),
    )

    async def scenario() -> list[str]:
        transport = httpx.MockTransport(handle)
        async with AsyncClient("http://127.0.0.1:1", "secret", transport=transport) as face:
            assert (await face.submit(task="hello")).job_id == "j1"
            return [found.run_id async for found in face.all_runs(status="failed")]

    assert asyncio.run(scenario()) == ["a", "b"]
    assert asked[0].content == asked[1].content


def two_servers(handler: Handler, **settings: Any) -> Client:
    transport = httpx.MockTransport(handler)
    return Client("http://127.0.0.1:1,http://127.0.0.1:2", "secret", transport=transport, **settings)


@pytest.mark.parametrize("trouble", [httpx.ConnectError("refused"), httpx.ReadError("reset"), busy()])
def test_the_next_server_is_asked_at_once_when_one_is_away_and_kept(trouble: httpx.Response | Exception) -> None:
    handle, asked = answers(trouble, created(), created())
    talking = two_servers(handle, patience=0)
    assert talking.submit(task="hello").job_id == "j1"
    assert talking.submit(task="hello").job_id == "j1"
    assert [request.url.port for request in asked] == [1, 2, 2]


def test_what_must_not_be_repeated_is_not_sent_to_the_next_server_either() -> None:
    handle, asked = answers(httpx.ReadTimeout("late"), created())
    talking = two_servers(handle)
    with pytest.raises(Unavailable):
        talking.run_now("report")
    talking.submit(task="hello")
    assert [request.url.port for request in asked] == [1, 2]


def test_all_servers_are_named_when_none_answers() -> None:
    def nobody(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1,http://127\.0\.0\.1:2"):
        two_servers(nobody, patience=0).submit(task="hello")


def test_the_awaited_client_goes_to_the_next_server_too() -> None:
    async def talk() -> list[int | None]:
        handle, asked = answers(httpx.ConnectError("refused"), created())
        transport = httpx.MockTransport(handle)
        async with AsyncClient("http://127.0.0.1:1,http://127.0.0.1:2", "secret", transport=transport) as talking:
            await talking.submit(task="hello")
        return [request.url.port for request in asked]

    assert asyncio.run(talk()) == [1, 2]


def test_a_connection_that_is_reset_as_it_opens_is_no_answer() -> None:
    """Under uvloop, which workers use, anyio raised AttributeError for some of these."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def reset_all() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    async def ask() -> None:
        async with AsyncClient(url, "token", patience=0) as client:
            for number in range(200):
                answer = asyncio.ensure_future(client.job("anything"))
                for _ in range(number % 12):
                    await asyncio.sleep(0)
                time.sleep(0.001)  # the loop is busy while the reset arrives
                with pytest.raises(Unavailable):
                    await answer

    resetting = threading.Thread(target=reset_all)
    resetting.start()
    try:
        uvloop.run(ask())
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        resetting.join()


def test_a_client_that_nobody_closes_closes_its_connections() -> None:
    class Transport(httpx.BaseTransport):
        closed = 0

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json={"jobs": [], "next": None})

        def close(self) -> None:
            self.closed += 1

    transport = Transport()
    client = Client("http://127.0.0.1:1", "t", transport=transport)
    assert client.jobs().jobs == [] and transport.closed == 0
    del client
    gc.collect()
    assert transport.closed == 1
    with Client("http://127.0.0.1:1", "t", transport=transport) as other:
        other.close()
    assert transport.closed == 2, "once, however often it is closed"
