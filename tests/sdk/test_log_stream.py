"""Following a log in the client: events, broken connections and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from mainspring.domain.errors import NotFound, Unavailable
from mainspring.sdk.client.async_client import AsyncClient
from mainspring.sdk.client.client import Client
from mainspring.sdk.client.log_stream import LogEvent
from tests.sdk.wire_samples import problem, run

RUN = run()["run_id"]


def event(name: str, mark: str, **data: Any) -> bytes:
    return f"id: {mark}\nevent: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


class Bytes(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A response in several pieces that can end in the middle."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def __aiter__(self) -> Any:
        for piece in self:
            yield piece


def stream(*pieces: bytes | Exception) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Bytes(*pieces))


def answers(*outcomes: httpx.Response | Exception) -> tuple[Callable[[httpx.Request], httpx.Response], list[Any]]:
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        outcome = outcomes[len(asked) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return handle, asked


def client(handler: Any, **settings: Any) -> Client:
    return Client("http://127.0.0.1:1", "secret", transport=httpx.MockTransport(handler), **settings)


def test_output_comes_as_text_and_events_tell_the_rest() -> None:
    whole = (
        b": hello\n\n"
        + event("output", "1:4", attempt=1, text="one\u2028\n")
        + event("truncated", "1:4", attempt=1, text="[cut]\n")
        + b": keep-alive\n\n"
        + event("attempt", "2:0", attempt=2)
        + event("something new", "2:0", of="a newer server")
        + event("end", "2:0", status="FAILED")
    )
    for size in (1, 7, len(whole)):  # however the network cuts it
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        handle, asked = answers(stream(*pieces), stream(*pieces))
        face = client(handle)
        assert list(face.log_events(RUN, attempt=2)) == [
            LogEvent("output", 1, "one\u2028\n"),
            LogEvent("truncated", 1, "[cut]\n"),
            LogEvent("attempt", 2),
            LogEvent("end", status="FAILED"),
        ]
        assert list(face.follow_logs(RUN)) == ["one\u2028\n", "[cut]\n"]
        assert asked[0].url.path == f"/v1/runs/{RUN}/logs"
        assert dict(asked[0].url.params) == {"follow": "true", "attempt": "2"}
        assert "last-event-id" not in asked[0].headers


def test_a_connection_that_breaks_is_opened_again_where_it_was() -> None:
    half = event("output", "1:8", attempt=1, text="two\n")
    handle, asked = answers(
        stream(event("output", "1:4", attempt=1, text="one\n"), half[:20], httpx.ReadError("reset")),
        httpx.ConnectError("refused"),
        httpx.Response(503, headers={"retry-after": "0"}, json=problem(503, "store_down")),
        stream(half),
        stream(event("end", "1:8", status="SUCCESS")),
    )
    assert list(client(handle).follow_logs(RUN)) == ["one\n", "two\n"]
    assert [request.headers.get("last-event-id") for request in asked] == [None, "1:4", "1:4", "1:4", "1:8"]


def test_an_unknown_run_is_not_asked_for_again() -> None:
    handle, asked = answers(httpx.Response(404, json=problem(404, "not_found")))
    with pytest.raises(NotFound):
        list(client(handle).follow_logs(RUN))
    assert len(asked) == 1


def test_a_server_that_stays_away_is_given_up() -> None:
    handle, _ = answers(*[httpx.ConnectError("refused")] * 20)
    with pytest.raises(Unavailable):
        list(client(handle, patience=0.2).follow_logs(RUN))


def test_the_awaited_face_does_the_same() -> None:
    handle, asked = answers(
        stream(event("output", "1:4", attempt=1, text="one\n"), httpx.ReadError("reset")),
        stream(event("output", "1:8", attempt=1, text="two\n"), event("end", "1:8", status="SUCCESS")),
        httpx.Response(200, text="one\ntwo\n"),
    )

    async def read() -> list[str]:
        async with AsyncClient("http://127.0.0.1:1", "secret", transport=httpx.MockTransport(handle)) as face:
            texts = [text async for text in face.follow_logs(RUN)]
            return [*texts, await face.logs(RUN, attempt=1)]

    assert asyncio.run(read()) == ["one\n", "two\n", "one\ntwo\n"]
    assert asked[1].headers["last-event-id"] == "1:4"
    assert dict(asked[2].url.params) == {"attempt": "1"}


def test_a_handle_gives_the_log_of_its_latest_run() -> None:
    handle, asked = answers(
        httpx.Response(200, json={"job_id": "j", "status": "COMPLETED", "latest_run": run()}),
        httpx.Response(200, text="printed\n"),
        httpx.Response(200, text="printed\n"),
        httpx.Response(200, json={"job_id": "j", "status": "SCHEDULED", "latest_run": None}),
    )
    face = client(handle)
    assert face.handle("j").logs() == "printed\n"
    assert face.handle("j", RUN).logs(2) == "printed\n"
    assert face.handle("j").logs() == ""
    assert [request.url.path for request in asked[1:3]] == [f"/v1/runs/{RUN}/logs"] * 2


def test_parts_of_a_log_are_asked_for_by_byte_and_by_text() -> None:
    part = {"attempt": 1, "start": 8, "end": 12, "bytes": 12, "text": "two\n"}
    found = {"attempt": 1, "matches": [{"start": 8, "at": 8, "text": "two"}], "searched_to": 12, "bytes": 12}
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=part if request.url.path.endswith("range") else found)

    face = client(handle)
    assert face.log_lines(RUN, 1, start=8, lines=1, numbered=True).text == "two\n"
    assert face.search_log(RUN, "TWO & more", start=4).matches[0].at == 8
    assert [dict(request.url.params) for request in asked] == [
        {"attempt": "1", "start": "8", "lines": "1", "numbered": "true"},
        {"text": "TWO & more", "start": "4"},
    ]


def test_a_log_is_followed_from_a_byte_on() -> None:
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, content=b'id: 1:12\nevent: end\ndata: {"status":"SUCCESS"}\n\n')

    assert [event.kind for event in client(handle).log_events(RUN, after="1:12")] == ["end"]
    assert asked[0].headers["last-event-id"] == "1:12"
