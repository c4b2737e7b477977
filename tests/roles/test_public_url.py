"""`--public-url`: links begin with the address at which clients reach the servers."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from mainspring.api.auth import hosts_for
from mainspring.domain.errors import InvalidInput
from mainspring.kernel.public_url import link_to, set_public_url
from mainspring.roles.listening import checked_public_url
from mainspring.roles.server import host_of
from tests.operations.hand_worker import HandWorker, outcome


@pytest.fixture
def public_url() -> Iterator[str]:
    set_public_url("https://jobs.example.com/")
    yield "https://jobs.example.com"
    set_public_url(None)


@pytest.mark.anyio
async def test_links_are_absolute_if_the_address_is_known(api: httpx.AsyncClient, public_url: str) -> None:
    await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * 3)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await worker.report(outcome(order))
    run = (await api.get(f"/v1/runs/{order.run_id}")).json()
    assert run["log_url"] == f"{public_url}/v1/runs/{order.run_id}/logs"
    page = await api.get("/v1/runs?limit=1")
    assert page.headers["link"].startswith(f"<{public_url}/v1/runs?limit=1&cursor=")


def test_without_it_links_are_paths() -> None:
    assert link_to("/v1/runs") == "/v1/runs"


@pytest.mark.parametrize(
    "given, used",
    [
        (None, None),
        ("", None),
        ("https://jobs.example.com/", "https://jobs.example.com"),
        ("http://a:80/x", "http://a:80/x"),
    ],
)
def test_an_address_is_used_without_its_last_slash(given: str | None, used: str | None) -> None:
    assert checked_public_url(given) == used


@pytest.mark.parametrize(
    "given",
    [
        "jobs.example.com",
        "ftp://a",
        "https://",
        "https://u:p@a",
        "https://a?x=1",
        "https://a#b",
        "https://a:99999",
        "http://a b",
    ],
)
def test_what_is_no_address_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_public_url(given)
    assert (refused.value.field, refused.value.hint) == ("public_url", "such as https://jobs.example.com")


def test_requests_to_its_host_name_are_accepted() -> None:
    assert "jobs.example.com" in hosts_for("127.0.0.1", host_of("https://jobs.example.com:8443"))
    assert host_of(None) == ()
