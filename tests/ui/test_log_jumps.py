"""Where the log is, is what was asked for last: whatever was loading or searching before does not move it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
from playwright.sync_api import Error, Page, Route, expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open
from tests.ui.test_details import ended_run

expect.set_options(timeout=PATIENCE * 1000)
LINES = "seq 100001 160000; echo ERROR at the end"


class Held:
    """Requests that wait in the network, until they are let go."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._page, self._pattern = page, re.compile(pattern)
        self._routes: list[Route] = []
        self._holding = False
        page.route(self._pattern, self._route)

    def _route(self, route: Route) -> None:
        if self._holding:
            self._routes.append(route)
        else:
            route.fallback()

    @contextmanager
    def sent(self) -> Iterator[None]:
        """What is sent in here waits. Later requests pass."""
        self._holding = True
        yield
        until(lambda: self._page.evaluate("true") and self._routes != [])  # Playwright tells while it is called
        self._holding = False

    def let_go(self) -> None:
        for route in self._routes:
            with suppress(Error):  # the page has given it up
                route.continue_()
        self._routes.clear()


def test_the_last_of_many_jumps_in_a_log_wins(open_page: Open, server: httpx.Client) -> None:
    page = open_page(f"/runs/{ended_run(server, command=['sh', '-c', LINES])}")
    region, log = page.get_by_role("region", name="Log"), page.get_by_role("log")
    button = {
        name: region.get_by_role("button", name=name)
        for name in ("Previous match", "Next match", "Next error", "Beginning of the log", "End of the log")
    }
    last = log.get_by_text("ERROR at the end", exact=True)
    expect(last).to_be_in_viewport()
    page.get_by_label("Find in the log").fill("9999")
    expect(region.get_by_role("status")).to_have_text("1/6")
    expect(log.get_by_text("109999", exact=True)).to_be_in_viewport()

    ranges, searches = Held(page, "/logs/range"), Held(page, "/logs/search")
    for name, text in (("End of the log", "ERROR at the end"), ("Beginning of the log", "100001")):
        with ranges.sent():
            button["Next match"].click()
        button[name].click()
        expect(log.get_by_text(text, exact=True)).to_be_in_viewport()
        ranges.let_go()
    expect(region.get_by_role("status")).to_have_text("3/6")

    # a match while another one loads
    with ranges.sent():
        button["Next match"].click()
    button["Next match"].click()
    expect(region.get_by_role("status")).to_have_text("5/6")
    expect(log.get_by_text("149999", exact=True)).to_be_in_viewport()
    ranges.let_go()

    button["End of the log"].click()
    expect(last).to_be_in_viewport()
    # what is in the window already, and needs no request
    with ranges.sent():
        button["Beginning of the log"].click()
    button["Next error"].click()
    ranges.let_go()
    with page.expect_response(re.compile("/logs/range")):
        button["Previous match"].click()
    expect(log.get_by_text("139999", exact=True)).to_be_in_viewport()
    button["End of the log"].click()
    expect(last).to_be_in_viewport()
    log.evaluate("box => { box.scrollTop -= 400 }")  # the same error again, after it was scrolled away
    button["Next error"].click()
    expect(last).to_be_in_viewport()
    log.evaluate("box => { box.scrollTop -= 400 }")
    expect(last).not_to_be_in_viewport()
    button["Next error"].click()
    expect(last).to_be_in_viewport()

    # a search that answers after the person went on
    with searches.sent():
        page.get_by_label("Find in the log").fill("0123")
    button["End of the log"].click()
    with page.expect_response(re.compile("/logs/search")):
        searches.let_go()
    expect(region.get_by_role("status")).to_contain_text("1/")
    expect(last).to_be_in_viewport()
