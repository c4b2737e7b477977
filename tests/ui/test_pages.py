"""Every page: nothing wrong for assistive technology, nothing wider than the screen, and text of users stays text."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from mainspring.api.page import FOLDER
from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.serving import PAGES, ROOT, is_loaded

expect.set_options(timeout=PATIENCE * 1000)
AXE = ROOT / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
HOSTILE = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"
PRINTED = HOSTILE + "\\033[31mred\\033]0;title\\007\\n"


WIDER = "document.documentElement.scrollWidth > innerWidth"
# The rules whose result depends on the colours and on the size of the screen. The others look at the same elements.
OF_COLOURS_AND_SIZES = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"]


def serious(rules: list[str] | None = None) -> str:
    """A script that finds what is wrong for assistive technology, by these rules or by all."""
    only = f", runOnly: {{type: 'rule', values: {json.dumps(rules)}}}" if rules else ""
    return (
        """axe.run(document, {resultTypes: ['violations']"""
        + only
        + """}).then(({violations}) => violations
  .filter(({impact}) => impact === 'serious' || impact === 'critical')
  .flatMap(({id, nodes}) => nodes.slice(0, 3).map(({html, failureSummary}) => [id, html, failureSummary].join(' '))))
"""
    )


class Beside:
    """Scripts beside those of the page. `page.evaluate` would use `eval`, which the CSP of the page reports."""

    def __init__(self, page: Page) -> None:
        self.devtools = page.context.new_cdp_session(page)
        frame = self.devtools.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        self.world = self.devtools.send("Page.createIsolatedWorld", {"frameId": frame})["executionContextId"]

    def evaluate(self, script: str) -> Any:
        told = {"expression": script, "contextId": self.world, "awaitPromise": True, "returnByValue": True}
        found = self.devtools.send("Runtime.evaluate", told)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def close(self) -> None:
        self.devtools.detach()


@pytest.mark.parametrize("phone", [False, True], ids=["wide and light", "phone and dark"])
def test_every_page_is_accessible_and_fits(open_page: Open, server: httpx.Client, phone: bool) -> None:
    job = server.post("/v1/jobs", json={"command": "exit 1", "retries": 0}).raise_for_status().json()["job_id"]
    page = open_page(phone=phone, dark=phone)
    faults: list[str] = []
    for path in (*PAGES, "/docs?op=createJob", f"/jobs/{job}", f"/runs/{job}"):
        page.goto("/ui" + path)
        is_loaded(page)
        beside = Beside(page)
        if beside.evaluate(WIDER):
            faults.append(f"{path} is wider than the screen")
        if AXE.is_file():
            beside.evaluate(AXE.read_text() + ";0")
            rules = OF_COLOURS_AND_SIZES if phone else None
            faults += [f"{path} {fault}" for fault in beside.evaluate(serious(rules))]
        beside.close()
    assert faults == []


def test_text_of_users_stays_text(open_page: Open, server: httpx.Client) -> None:
    body = {
        "job_id": "hostile", "name": HOSTILE[:100], "command": ["printf", PRINTED], "owner": "<b>x</b>",
        "description": HOSTILE, "labels": {"team": "<i>x</i>"}, "schedule": "0 0 1 1 *",
    }  # fmt: skip
    server.post("/v1/jobs", json=body).raise_for_status()
    run = server.post("/v1/jobs/hostile:runNow", json={}).raise_for_status().json()["run_id"]
    page = open_page("/jobs")
    for path in ("/jobs", "/jobs/hostile?tab=definition", "/runs", f"/runs/{run}"):
        page.goto("/ui" + path)
        expect(page.get_by_role("main").get_by_text("<img src=x").first).to_be_visible()
        assert page.title() != "hit"
        assert page.locator("main img[src=x], main script").count() == 0
    expect(page.get_by_role("log")).to_contain_text("<script>")


def test_long_names_fit_a_phone(open_page: Open, server: httpx.Client) -> None:
    body = {
        "job_id": "long-name",
        "name": "n" * 190,
        "command": "true",
        "owner": "o" * 190,
        "schedule": {"every": "5s"},
    }
    server.post("/v1/jobs", json=body).raise_for_status()
    page = open_page("/settings", phone=True)
    for path in ("/", "/jobs", "/jobs/long-name", "/runs"):
        page.goto("/ui" + path)
        is_loaded(page)
        expect(page.get_by_role("main").get_by_text("n" * 100).first).to_be_attached()
        beside = Beside(page)
        assert not beside.evaluate(WIDER), path
        beside.close()
    server.delete("/v1/jobs/long-name").raise_for_status()


def test_the_keyboard_is_enough(open_page: Open) -> None:
    page = open_page("/settings")
    is_loaded(page)
    page.keyboard.press("Control+k")
    page.get_by_role("dialog").get_by_role("combobox").fill("queues")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.get_by_role("heading", level=1)).to_have_text("Workflows")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")


def test_the_first_load_is_small() -> None:
    """160 kB compressed before any page, so that the overview with its charts stays below 200."""
    shell = (FOLDER / "index.html").read_text()
    names = [path for path in (FOLDER / "assets").iterdir() if path.name in shell]
    assert names
    assert sum(len(gzip.compress(path.read_bytes())) for path in names) < 160_000


def test_a_page_has_no_more_than_200_rows_of_a_long_list(open_page: Open, server: httpx.Client) -> None:
    [queue, *_] = server.get("/v1/queues").raise_for_status().json()["queues"] or [_queue_of(server)]
    many = {"queues": [{**queue, "name": f"queue {n:03}"} for n in range(450)]}
    page = open_page("/queues")
    page.route("**/v1/queues", lambda route: route.fulfill(json=many))
    page.goto("/ui/queues")
    rows, parts = page.locator("tbody tr"), page.get_by_role("navigation", name="Parts of Queues")
    expect(parts).to_contain_text("1 to 200 of 450")
    assert rows.count() == 200
    parts.get_by_role("button", name="Next 200").click()
    parts.get_by_role("button", name="Next 200").click()
    expect(parts).to_contain_text("401 to 450 of 450")
    assert rows.count() == 50
    page.unroute_all(behavior="ignoreErrors")


def test_a_page_of_several_lists_has_no_more_than_200_rows(open_page: Open) -> None:
    page = open_page("/access")
    for name, key in (("tokens", "token_id"), ("sessions", "session_id"), ("tenants", "tenant_id")):
        [row, *_] = page.request.get(f"/v1/{name}").json()[name]
        many = {name: [{**row, key: f"id {n}", "name": f"name {n}"} for n in range(300)], "more": False}
        _answer(page, f"**/v1/{name}", many)
    page.goto("/ui/access")
    expect(page.get_by_role("navigation", name="Parts of")).to_have_count(3)
    assert page.locator("tbody tr").count() <= 200
    page.get_by_role("navigation", name="Parts of Sessions").get_by_role("button", name="Next 50").click()
    expect(page.get_by_role("table", name="Sessions").get_by_text("name 99")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.slow
def test_dialogs_are_accessible(open_page: Open, server: httpx.Client) -> None:
    """Those of every page: the search and the keys. And a run with many attempts, whose strip scrolls."""
    page = open_page("/jobs")
    is_loaded(page)
    for key in ("Control+k", "?"):
        page.keyboard.press(key)
        page.get_by_role("dialog").wait_for()
        assert faults_of(page) == [], key
        page.keyboard.press("Escape")
    retry = {"max_attempts": 40, "backoff": "constant", "base": 0, "jitter": 0}
    job = server.post("/v1/jobs", json={"command": "exit 1", "retry": retry}).raise_for_status().json()["job_id"]
    page.goto(f"/ui/runs/{job}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Failed")
    expect(page.get_by_role("img", name="waits and attempts")).to_be_visible()
    assert faults_of(page) == []


def _answer(page: Page, address: str, body: Any) -> None:
    page.route(address, lambda route: route.fulfill(json=body))


def faults_of(page: Page) -> list[str]:
    if not AXE.is_file():
        return []
    beside = Beside(page)
    beside.evaluate(AXE.read_text() + ";0")
    found: list[str] = beside.evaluate(serious())
    beside.close()
    return found


def test_a_search_says_how_far_it_looked(open_page: Open) -> None:
    page = open_page("/jobs")
    looked = {"jobs": [], "next": "further", "searched_to": "2026-07-01T12:00:00Z"}
    page.route("**/v1/jobs?*", lambda route: route.fulfill(json=looked))
    page.goto("/ui/jobs?q=rare")
    expect(page.get_by_text("Nothing found so far. Looked back to")).to_be_visible()
    expect(page.get_by_role("link", name="Go on")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")


def _queue_of(server: httpx.Client) -> Any:
    server.post("/v1/jobs", json={"task": "nobody", "schedule": "manual"}).raise_for_status()
    return server.get("/v1/queues").raise_for_status().json()["queues"][0]
