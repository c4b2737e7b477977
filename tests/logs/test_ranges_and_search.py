"""Ranges of a log, from either end, and the search in it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import pytest

from mainspring.operations.logs import log_ranges, log_search
from tests.logs.scene import a_run, chunk, claim_soon, ship, text
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def printed(worker: HandWorker, data: bytes, size: int = 1000) -> UUID:
    """A run that has printed this, in chunks, and goes on."""
    order = await a_run(worker)
    for start in range(0, len(data), size):
        await ship(worker, chunk(order, start, data[start : start + size]))
    return order.run_id


async def lines(api: httpx.AsyncClient, run_id: UUID, **params: Any) -> dict[str, Any]:
    answer = await api.get(f"/v1/runs/{run_id}/logs/range", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def search(api: httpx.AsyncClient, run_id: UUID, wanted: str, **params: Any) -> dict[str, Any]:
    answer = await api.get(f"/v1/runs/{run_id}/logs/search", params={"text": wanted, **params})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


NUMBERED = b"".join(b"line %d\n" % number for number in range(1, 1001))


# -- ranges


async def test_the_last_lines_come_first_and_one_reads_back_from_there(
    worker: HandWorker, api: httpx.AsyncClient
) -> None:
    run_id = await printed(worker, NUMBERED)
    found = await lines(api, run_id, lines=3, numbered="true")
    assert found["text"] == "line 998\nline 999\nline 1000\n"
    assert (found["end"], found["bytes"], found["line"]) == (len(NUMBERED), len(NUMBERED), 998)
    assert (found["attempt"], found["ended"], found["truncated"]) == (1, False, False)
    earlier = await lines(api, run_id, before=found["start"], lines=2)
    assert (earlier["text"], earlier["end"], earlier["line"]) == ("line 996\nline 997\n", found["start"], None)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 7, 400])
async def test_ranges_from_either_end_make_up_the_whole_log(
    worker: HandWorker, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(log_ranges, "BLOCK_BYTES", 700)
    run_id = await printed(worker, NUMBERED[:3000])
    forward, at = "", 0
    while at < 3000:
        found = await lines(api, run_id, start=at, lines=most)
        assert (found["start"], found["end"] > at) == (at, True)
        forward, at = forward + found["text"], found["end"]
    back, at = "", 3000
    while at > 0:
        found = await lines(api, run_id, before=at, lines=most)
        assert (found["end"], found["start"] < at) == (at, True)
        back, at = found["text"] + back, found["start"]
    assert forward == back == NUMBERED[:3000].decode()


async def test_a_range_begins_with_the_line_that_contains_its_byte(worker: HandWorker, api: httpx.AsyncClient) -> None:
    run_id = await printed(worker, b"one\ntwo\nthree")
    assert [(await lines(api, run_id, start=at, lines=1))["text"] for at in (0, 3, 4, 6, 8, 12)] == [
        "one\n", "one\n", "two\n", "two\n", "three", "three",
    ]  # fmt: skip
    beyond = await lines(api, run_id, start=500)
    assert (beyond["text"], beyond["start"], beyond["end"]) == ("three", 8, 13)
    assert (await lines(api, run_id, before=500))["text"] == "one\ntwo\nthree"
    assert (await lines(api, run_id, before=0))["text"] == ""
    assert (await lines(api, run_id, start=4, before=8))["text"] == "two\n"


async def test_a_line_longer_than_a_block_comes_in_parts_of_whole_characters(
    worker: HandWorker, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_ranges, "BLOCK_BYTES", 100)
    monkeypatch.setattr(log_ranges, "_BACK", 10)
    said = "x" + "ä€😀" * 60
    run_id = await printed(worker, said.encode())
    forward, at = "", 0
    while at < len(said.encode()):
        found = await lines(api, run_id, start=at)
        forward, at = forward + found["text"], found["end"]
    back, at = "", len(said.encode())
    while at > 0:
        found = await lines(api, run_id, before=at)
        back, at = found["text"] + back, found["start"]
    assert forward == back == said


async def test_an_ended_attempt_and_one_without_output(worker: HandWorker, api: httpx.AsyncClient) -> None:
    order = await a_run(worker, retry={"max_attempts": 3, "base": "1ms", "backoff": "constant"})
    await ship(worker, chunk(order, 0, b"first\n", truncated=True, end=True))
    await worker.report(outcome(order, "FAILED", error="no"))
    first = await lines(api, order.run_id, attempt=1)
    assert (first["text"], first["ended"], first["truncated"]) == ("first\n", True, True)
    await claim_soon(worker)
    newest = await lines(api, order.run_id, numbered="true")
    assert (newest["attempt"], newest["text"], newest["bytes"], newest["ended"]) == (2, "", 0, False)
    assert newest["line"] == 1


async def test_a_bad_range_is_refused(worker: HandWorker, api: httpx.AsyncClient) -> None:
    run_id = await printed(worker, b"one\n")
    for params, field in (
        ({"start": -1}, "start"),
        ({"lines": 0}, "lines"),
        ({"lines": 100_000}, "lines"),
        ({"attempt": 0}, "attempt"),
    ):
        answer = await api.get(f"/v1/runs/{run_id}/logs/range", params=params)
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    for params in ({"attempt": 9}, {}):
        unknown = run_id if params else "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"
        assert (await api.get(f"/v1/runs/{unknown}/logs/range", params=params)).status_code == 404


# -- search


async def test_lines_that_contain_the_text_are_found_whatever_its_case(
    worker: HandWorker, api: httpx.AsyncClient
) -> None:
    data = b"start\nan Error here, an ERROR there\nfine\nerror\n"
    run_id = await printed(worker, data, size=7)
    found = await search(api, run_id, "eRRor")
    assert [match["text"] for match in found["matches"]] == ["an Error here, an ERROR there", "error"]
    assert [(match["start"], match["at"]) for match in found["matches"]] == [(6, 9), (41, 41)]
    assert (found["more"], found["searched_to"], found["bytes"], found["ended"]) == (False, 47, 47, False)


@pytest.mark.parametrize(("q", "hits"), [("größe", 3), ("€5", 1), ("ERR", 1), ("a.c", 1), ("[b", 1), ("\x1b[31m", 1)])
async def test_a_search_is_for_the_text_itself(worker: HandWorker, api: httpx.AsyncClient, q: str, hits: int) -> None:
    said = "Größe 1\nGRÖßE 2\ngröße\nabc\na.c [b\n€5\n\x1b[31merr\x1b[0m\n"
    run_id = await printed(worker, said.encode(), size=5)
    assert len((await search(api, run_id, q))["matches"]) == hits


@pytest.mark.parametrize("budget", [64, 1000, 5000])
async def test_a_search_in_steps_finds_what_one_search_finds(
    worker: HandWorker, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    monkeypatch.setattr(log_search, "MOST_BYTES", budget)
    monkeypatch.setattr(log_search, "_SECTION", 50)
    run_id = await printed(worker, NUMBERED)
    found: list[str] = []
    start, more, asked = 0, True, 0
    while more:
        part = await search(api, run_id, "NE 10", start=start, limit=2)
        assert part["searched_to"] > start or not part["more"]
        found += [match["text"] for match in part["matches"]]
        start, more, asked = part["searched_to"], part["more"], asked + 1
    wanted = [line for line in NUMBERED.decode().splitlines() if "ne 10" in line]
    assert (found, asked > 5, start) == (wanted, True, len(NUMBERED))


async def test_an_incomplete_line_is_searched_and_searched_again(worker: HandWorker, api: httpx.AsyncClient) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"one\nfound he"))
    first = await search(api, order.run_id, "found")
    assert ([match["text"] for match in first["matches"]], first["searched_to"]) == (["found he"], 4)
    assert (await search(api, order.run_id, "here"))["matches"] == []
    await ship(worker, chunk(order, 12, b"re", end=True))
    await worker.report(outcome(order))
    last = await search(api, order.run_id, "here", start=4)
    assert [match["text"] for match in last["matches"]] == ["found here"]
    assert (last["searched_to"], last["ended"], last["more"]) == (14, True, False)


async def test_a_match_across_the_parts_of_a_long_line_is_found_once(
    worker: HandWorker, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "_SECTION", 40)
    monkeypatch.setattr(log_search, "_LONGEST_LINE", 32)
    run_id = await printed(worker, b"." * 30 + b"needle" + b"." * 200, size=11)
    found = (await search(api, run_id, "needle"))["matches"]
    assert [match["at"] for match in found] == [30]


async def test_of_a_long_line_the_part_around_the_match_is_returned(worker: HandWorker, api: httpx.AsyncClient) -> None:
    run_id = await printed(worker, b"a" * 5000 + b" needle " + b"b" * 5000 + b"\n")
    (match,) = (await search(api, run_id, "needle"))["matches"]
    assert (match["start"], match["at"], len(match["text"])) == (0, 5001, 1000)
    assert " needle " in match["text"]


async def test_a_bad_search_is_refused(worker: HandWorker, api: httpx.AsyncClient) -> None:
    run_id = await printed(worker, b"one\n")
    for params, field in (
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": "a\nb"}, "text"),
        ({"text": "a" * 201}, "text"),
        ({"text": "a", "limit": 0}, "limit"),
        ({"text": "a", "start": -1}, "start"),
    ):
        answer = await api.get(f"/v1/runs/{run_id}/logs/search", params=params)
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


async def test_ranges_and_search_see_merged_objects_too(worker: HandWorker, api: httpx.AsyncClient) -> None:
    """Small chunks are merged 64 at a time."""
    run_id = await printed(worker, NUMBERED, size=30)
    assert (await lines(api, run_id, lines=1))["text"] == "line 1000\n"
    assert (await lines(api, run_id, start=0, lines=1))["text"] == "line 1\n"
    assert [match["text"] for match in (await search(api, run_id, "line 500"))["matches"]] == ["line 500"]
    assert await text(api, run_id) == NUMBERED.decode()
