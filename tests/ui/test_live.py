"""The dashboard follows the event stream, and says so when it does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open
from tests.ui.proxy import Proxy
from tests.ui.serving import is_loaded, look, sign_in

expect.set_options(timeout=PATIENCE * 1000)

# While the page is live it polls every 15 s or more. Without that, only the stream can change what it shows.
NO_SLOW_POLLS = """
const every = window.setInterval.bind(window);
window.setInterval = (work, ms, ...rest) => every(work, ms >= 10000 ? 1e9 : ms, ...rest);
"""


@pytest.fixture
def proxy(server: httpx.Client) -> Iterator[Proxy]:
    url = server.base_url
    assert url.port is not None
    made = Proxy((url.host, url.port))
    yield made
    made.stop()


def state(page: Page) -> Locator:
    return page.get_by_role("banner")


def live(page: Page) -> Locator:
    return state(page).get_by_text("live", exact=True)


def streams(server: httpx.Client) -> float:
    found = re.search(r"^mainspring_streams (\S+)$", server.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_a_new_job_and_the_end_of_a_run_are_shown_without_a_poll(open_page: Open, server: httpx.Client) -> None:
    page = open_page("/settings")
    page.context.add_init_script(NO_SLOW_POLLS)
    page.goto("/ui/jobs")
    expect(live(page)).to_be_visible()
    name = f"Told {uuid4().hex[:6]}"
    server.post("/v1/jobs", json={"name": name, "command": "true", "schedule": "0 0 1 1 *"}).raise_for_status()
    expect(page.get_by_role("table").get_by_text(name)).to_be_visible()
    run = server.post("/v1/jobs", json={"name": name, "command": "sleep 1"}).raise_for_status().json()["job_id"]
    page.goto(f"/ui/runs/{run}")
    expect(live(page)).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Success")


def test_a_page_without_a_server_says_since_when_and_comes_back(
    chromium: Browser, server: httpx.Client, proxy: Proxy
) -> None:
    through = httpx.Client(base_url=f"http://127.0.0.1:{proxy.port}", headers=server.headers)
    context = look(chromium, through, phone=False, dark=False)
    try:
        page = context.new_page()
        page.clock.install()
        sign_in(context, through)
        page.goto("/ui/queues")
        is_loaded(page)
        expect(live(page)).to_be_visible()
        proxy.stop()
        expect(state(page)).to_contain_text("polling")
        page.clock.fast_forward(20_000)
        expect(state(page)).to_contain_text(re.compile(r"Not live since \d\d:\d\d:\d\d"))
        proxy.start()
        page.clock.fast_forward(20_000)
        expect(live(page)).to_be_visible()
    finally:
        context.close()
        through.close()


def test_the_tabs_of_a_browser_share_one_stream(open_page: Open, server: httpx.Client) -> None:
    until(lambda: streams(server) == 0)
    first = open_page("/jobs")
    expect(live(first)).to_be_visible()
    others = [first.context.new_page() for _ in range(2)]
    for page in others:
        page.goto("/ui/jobs")
        expect(live(page)).to_be_visible()
    until(lambda: streams(server) == 1)
    first.close()
    until(lambda: streams(server) == 1)
    name = f"Shared {uuid4().hex[:6]}"
    server.post("/v1/jobs", json={"name": name, "command": "true", "schedule": "0 0 1 1 *"}).raise_for_status()
    for page in others:
        expect(page.get_by_role("table").get_by_text(name)).to_be_visible()
        expect(live(page)).to_be_visible()


def test_a_session_that_is_ended_elsewhere_asks_to_sign_in(open_page: Open) -> None:
    first = open_page("/jobs")
    second = first.context.new_page()
    second.goto("/ui/queues")
    expect(live(second)).to_be_visible()
    first.get_by_role("button", name="Sign out").click()
    expect(second.get_by_label("Token")).to_be_visible()
