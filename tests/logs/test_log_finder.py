"""GET /v1/logs: the output of many runs is searched, with the filters of runs, in PostgreSQL and in a folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from mainspring.operations.logs.log_finder import LogFinder
from mainspring.roles.assembly import Assembly
from tests.logs.scene import IN_A_FOLDER, IN_POSTGRESQL, a_run, chunk, ship
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants

pytestmark = pytest.mark.anyio


async def printed(worker: HandWorker, output: bytes, **fields: Any) -> UUID:
    """An ended run with this output."""
    order = await a_run(worker, **fields)
    await ship(worker, chunk(order, 0, output, end=True))
    await worker.exchange(outcomes=[outcome(order)])
    return order.run_id


async def found(api: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    """All hits, over all pages."""
    hits: list[dict[str, Any]] = []
    while True:
        answer = await api.get("/v1/logs", params=params)
        assert answer.status_code == 200, answer.text
        hits += answer.json()["hits"]
        if (following := answer.json()["next"]) is None:
            return hits
        params["cursor"] = following


def texts(hits: list[dict[str, Any]]) -> list[list[str]]:
    return [[line["text"] for line in hit["lines"]] for hit in hits]


async def test_words_are_found_in_any_run_the_newest_first(api: httpx.AsyncClient, worker: HandWorker) -> None:
    first = await printed(worker, b"begin\nERROR: Connection refused (10.0.0.7)\nend\n")
    await printed(worker, b"all is well\n")
    second = await printed(worker, b"connection refused, again\nconnection refused, again\n")
    await printed(worker, b"disconnection refusedly\n")

    hits = await found(api, text="connection refused")
    assert [hit["run_id"] for hit in hits] == [str(second), str(first)]
    assert texts(hits) == [["connection refused, again"] * 2, ["ERROR: Connection refused (10.0.0.7)"]]
    assert hits[1]["lines"][0]["start"] == 6 and hits[1]["lines"][0]["at"] == 13
    assert hits[0]["task"] == "noop" and hits[0]["status"] == "SUCCESS" and hits[0]["attempt"] == 1

    assert len(await found(api, text="connection refused", inside_words=True)) == 3
    assert texts(await found(api, text="10.0.0.7")) == [["ERROR: Connection refused (10.0.0.7)"]]
    assert await found(api, text="nothing like this") == []


async def test_pages_go_on_where_the_last_one_ended(
    api: httpx.AsyncClient, assembly: Assembly, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [await printed(worker, b"needle one\nneedle two\nneedle three\n") for _ in range(5)]
    hits = await found(api, text="needle", limit=2, lines=2)
    assert [hit["run_id"] for hit in hits] == [str(run) for run in reversed(runs)]
    assert all(texts([hit]) == [["needle one", "needle two"]] and hit["more"] for hit in hits)

    monkeypatch.setattr(LogFinder, "budget", 0.0)
    answer = (await api.get("/v1/logs", params={"text": "haystack", "since": "2020-01-01T00:00:00Z"})).json()
    assert answer["hits"] == []
    assert [hit["run_id"] for hit in await found(api, text="needle", limit=100)] == [str(run) for run in reversed(runs)]
    assert len(await found(api, text="needle", job=str(runs[0]))) == 1


async def test_a_search_that_ends_early_says_how_far_it_has_looked(
    api: httpx.AsyncClient, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogFinder, "budget", 0.0)
    monkeypatch.setattr("mainspring.operations.logs.log_finder._FIRST", 2)
    monkeypatch.setattr("mainspring.operations.logs.log_finder._MOST", 2)
    old = await printed(worker, b"needle\n")
    for _ in range(4):
        await printed(worker, b"hay\n")
    answer = (await api.get("/v1/logs", params={"text": "needle"})).json()
    assert answer["hits"] == [] and answer["next"] is not None
    assert datetime.fromisoformat(answer["searched_to"]).tzinfo is not None
    assert [hit["run_id"] for hit in await found(api, text="needle")] == [str(old)]


async def test_the_filters_of_runs_hold(api: httpx.AsyncClient, worker: HandWorker) -> None:
    plain = await printed(worker, b"needle\n")
    labelled = await printed(worker, b"needle\n", labels={"team": "bi"})
    live = await a_run(worker)
    await ship(worker, chunk(live, 0, b"needle\n"))
    both = {str(plain), str(labelled)}

    async def ids(**params: Any) -> set[str]:
        return {hit["run_id"] for hit in await found(api, text="needle", **params)}

    assert await ids() == both | {str(live.run_id)}
    assert await ids(status="success") == both
    assert await ids(label="team:bi") == {str(labelled)}
    assert await ids(task="noop") == both | {str(live.run_id)}
    assert await ids(task="other") == set()
    assert await ids(queue="other") == set()
    assert await ids(worker=str(worker.worker_id)) == both | {str(live.run_id)}
    assert await ids(worker=str(UUID(int=7))) == set()
    assert await ids(job=str(plain)) == {str(plain)}
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert await ids(since=soon.isoformat()) == set()
    assert await ids(until=(soon - timedelta(hours=2)).isoformat()) == set()
    assert await ids(since=(soon - timedelta(hours=2)).isoformat(), until=soon.isoformat()) >= both


async def test_a_word_right_after_a_colour_is_found(api: httpx.AsyncClient, worker: HandWorker) -> None:
    coloured = b"\x1b[1;31mconnection\x1b[0m \x1b(B\x1b[mRefused\x1b[K\nre\x1b[1mfused\n"
    run_id = await printed(worker, coloured)
    for text in ("connection", "refused", "fused"):
        assert [hit["run_id"] for hit in await found(api, text=text)] == [str(run_id)], text
    for text in ("onnection", "efused", "connectio"):
        assert await found(api, text=text) == [], text


@IN_POSTGRESQL
async def test_chunks_say_their_words_and_a_line_over_two_chunks_is_found(
    api: httpx.AsyncClient, assembly: Assembly, worker: HandWorker
) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, b"a line\nconnection re"), chunk(order, 20, b"fused\n"))
    assert texts(await found(api, text="connection refused")) == [["connection refused"]]
    async with assembly.store.reads.acquire() as connection:
        rows = await connection.fetch(
            "select words, lane_id from mainspring.log_chunks where run_id = $1 order by first_byte", order.run_id
        )
    assert [row["words"] is None for row in rows] == [True, False]
    assert all(row["lane_id"] is not None for row in rows)


@IN_POSTGRESQL
async def test_output_of_earlier_versions_without_words_is_searched(
    api: httpx.AsyncClient, assembly: Assembly, worker: HandWorker
) -> None:
    run_id = await printed(worker, b"needle\n")
    async with assembly.store.hot.acquire() as connection:
        await connection.execute(
            "update mainspring.log_chunks set words = null, lane_id = null where run_id = $1", run_id
        )
    assert [hit["run_id"] for hit in await found(api, text="needle", task="noop")] == [str(run_id)]


async def test_a_large_log_is_searched_in_parts(api: httpx.AsyncClient, worker: HandWorker) -> None:
    order = await a_run(worker)
    for number in range(3):
        await ship(worker, chunk(order, number * 400_000, b"x" * 199 + b"\n" + b"hay and\n" * 49_975))
    await ship(worker, chunk(order, 1_200_000, b"the needle\n"))
    [hit] = await found(api, text="needle")
    assert hit["lines"] == [{"start": 1_200_000, "at": 1_200_004, "text": "the needle"}]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "text"),
        ({"text": "a", "regex": "b"}, "text"),
        ({"text": "a", "cursor": "%%"}, "cursor"),
        ({"text": "a", "cursor": "MTIz"}, "cursor"),
        ({"text": "a", "status": "odd"}, "status"),
        ({"text": "a", "worker": "w1"}, "worker"),
        ({"text": "a", "lines": 0}, "lines"),
    ],
)
@IN_A_FOLDER
async def test_bad_searches_are_refused(api: httpx.AsyncClient, params: dict[str, Any], field: str) -> None:
    answer = await api.get("/v1/logs", params=params)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == field


@IN_POSTGRESQL
async def test_regular_expressions(api: httpx.AsyncClient, worker: HandWorker) -> None:
    pytest.importorskip("re2")
    await printed(worker, "code=17 over\nZeit überschritten\n".encode())
    assert texts(await found(api, regex=r"^CODE=\d+ ")) == [["code=17 over"]]
    assert texts(await found(api, regex="Ü.er.*n$")) == [["Zeit überschritten"]]
    assert await found(api, regex=r"over\s+Zeit") == []
    answer = await api.get("/v1/logs", params={"regex": "(a"})
    assert answer.status_code == 422 and answer.json()["field"] == "regex"


@IN_POSTGRESQL
async def test_tenants_and_narrowed_tokens_see_their_own_output(
    api: httpx.AsyncClient, worker: HandWorker, tenants: Tenants
) -> None:
    mine = await printed(worker, b"needle\n", labels={"team": "bi"})
    await printed(worker, b"needle\n", labels={"team": "ops"})
    [other] = await tenants.add("apart")
    assert await found(other, text="needle") == []
    narrowed = await tenants.client((await tenants.token(role="viewer", labels={"team": "bi"}))["token"])
    assert [hit["run_id"] for hit in await found(narrowed, text="needle")] == [str(mine)]
    queued = await tenants.client((await tenants.token(role="viewer", queues=["elsewhere"]))["token"])
    assert await found(queued, text="needle") == []
    blind = await tenants.client((await tenants.token(role="viewer", payloads=False))["token"])
    answer = await blind.get("/v1/logs", params={"text": "needle"})
    assert answer.status_code == 403 and answer.json()["code"] == "narrowed_token"
