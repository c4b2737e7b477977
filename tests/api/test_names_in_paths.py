"""Any name can be part of a path: encoded slashes, colons, dots and percent signs belong to the name."""

from __future__ import annotations

from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.api.routing import routable
from mainspring.sdk.client.calls import pause_queue, queue, resume_queue, set_queue_limits
from mainspring.sdk.client.core import Call

NAMES = [
    "a/b", "/", "a:pause", "a:resume:pause", ":pause", "pause", "..", ".", "a/../b", "100%", "%2F", "%", "ä ö", "a?b=c",
    "a#b", "a\\b", "limits", "\u202e", "a+b", " a ", "a%3Apause",
]  # fmt: skip


async def send(api: httpx.AsyncClient, call: Call[object]) -> dict[str, object]:
    answer = await api.request(call.method, call.path, content=call.body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, (call.path, answer.text)
    found: dict[str, object] = answer.json()
    return found


@pytest.mark.anyio
async def test_a_queue_with_any_name_is_limited_paused_and_shown(api: httpx.AsyncClient) -> None:
    for number, name in enumerate(NAMES, 1):
        assert (await api.post("/v1/jobs", json={"task": "noop", "queue": name})).status_code == 201
        limited = await send(api, set_queue_limits(name, concurrency=number))
        assert (limited["queue"], limited["concurrency"]) == (name, number)
        assert (await send(api, pause_queue(name)))["paused_at"] is not None
        shown = await send(api, queue(name))
        assert (shown["name"], shown["depth"]) == (name, 1), shown
        assert (await send(api, resume_queue(name)))["paused_at"] is None
    listed = (await api.get("/v1/queues")).json()["queues"]
    assert sorted(one["name"] for one in listed) == sorted(NAMES)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/%6Aobs", 200), ("/v1/queues/a%2Fpause", 404), ("/v1%2Fjobs", 404), ("/v1/queues/a%00b", 404),
     ("/v1/queues/%FF", 404), ("/v1/queues/%zz", 404), ("/v1/jobs/a%3Apause", 404)],
)  # fmt: skip
async def test_what_is_not_reserved_is_decoded_before_routing(api: httpx.AsyncClient, path: str, status: int) -> None:
    answer = await api.get(path)
    assert answer.status_code == status, answer.text


@given(st.text(min_size=1))
def test_a_name_survives_its_way_through_a_path(name: str) -> None:
    path = routable(pause_queue(name).path.encode())
    assert path.count("/") == 3
    assert path.endswith(":pause")
    assert unquote(path.removeprefix("/v1/queues/").removesuffix(":pause")) == name
