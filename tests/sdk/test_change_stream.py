"""Following changes in the client: events, broken connections, and what may have been missed."""

from __future__ import annotations

import asyncio
from itertools import islice

import httpx
import pytest

from mainspring.domain.errors import Unauthorized, Unavailable
from mainspring.sdk.client.async_client import AsyncClient
from mainspring.sdk.client.change_stream import ChangeEvent
from mainspring.wire.live import Change
from tests.sdk.test_log_stream import answers, client, event, stream
from tests.sdk.wire_samples import problem

OPEN = event("open", "0a:1", topics=["runs"], beat=5.0)
RUNS = event("change", "0a:2", topic="runs", changes=12)
STOPS = event("end", "0a:3", reason="server_stops")


def test_changes_come_as_events_and_comments_do_not() -> None:
    whole = b"retry: 2000\n" + OPEN + b": beat\n\n" + RUNS + event("something new", "0a:3", of="a newer server")
    for size in (1, 7, len(whole)):  # however the network cuts it
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        handle, asked = answers(stream(*pieces))
        seen = list(islice(client(handle).events("runs", "run:7"), 2))
        assert seen == [ChangeEvent("open"), ChangeEvent("change", Change("runs", changes=12))]
        assert (asked[0].url.path, dict(asked[0].url.params)) == ("/v1/stream", {"topics": "runs,run:7"})


def test_a_stream_that_begins_again_says_that_something_may_be_missed() -> None:
    handle, asked = answers(
        stream(OPEN, RUNS, httpx.ReadError("reset")),
        httpx.ConnectError("refused"),
        httpx.Response(503, headers={"retry-after": "0"}, json=problem(503, "streams_full")),
        stream(OPEN, STOPS),
        stream(OPEN, RUNS),
    )
    seen = list(islice(client(handle).events("runs"), 5))
    assert [one.kind for one in seen] == ["open", "change", "open", "open", "change"]
    assert [one.missed for one in seen] == [False, False, True, True, False]
    assert all("last-event-id" not in request.headers for request in asked), "there is no replay"


def test_a_token_that_is_not_valid_any_more_ends_it() -> None:
    handle, asked = answers(
        stream(OPEN, event("end", "0a:2", reason="signed_out")),
        httpx.Response(401, json=problem(401, "invalid_token")),
    )
    with pytest.raises(Unauthorized):
        list(client(handle).events("runs"))
    assert len(asked) == 2


def test_a_server_that_stays_away_is_given_up() -> None:
    handle, _ = answers(stream(OPEN), *[httpx.ConnectError("refused")] * 50)
    with pytest.raises(Unavailable):
        list(client(handle, patience=0.2).events("runs"))


def test_the_awaited_face_does_the_same() -> None:
    handle, _ = answers(stream(OPEN, RUNS, httpx.ReadError("reset")), stream(OPEN))

    async def read() -> list[ChangeEvent]:
        seen: list[ChangeEvent] = []
        async with AsyncClient("http://127.0.0.1:1", "secret", transport=httpx.MockTransport(handle)) as face:
            async for one in face.events("runs"):
                seen.append(one)
                if one.missed:
                    break
        return seen

    assert [(one.kind, one.missed) for one in asyncio.run(read())] == [
        ("open", False), ("change", False), ("open", True),
    ]  # fmt: skip
