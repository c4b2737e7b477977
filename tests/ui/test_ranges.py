"""The time that a list is about: presets, two moments, and a part of a chart; all in the address."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.test_details import ended_run

expect.set_options(timeout=PATIENCE * 1000)
LISTS = {"/runs": "/v1/runs?", "/dead-letters": "/v1/dead-letters?", "/failures": "/v1/insights/failures?"}


@pytest.mark.parametrize("path", LISTS)
def test_a_preset_is_in_the_address_and_in_the_request(open_page: Open, path: str) -> None:
    page = open_page(path)
    with page.expect_request(lambda request: LISTS[path] in request.url and "since=" in request.url):
        page.get_by_role("group", name="Time range").get_by_role("button", name="6h").click()
    expect(page).to_have_url(re.compile(r"[?&]w=6h"))
    page.go_back()
    expect(page).not_to_have_url(re.compile("w=6h"))


def test_two_moments_are_in_the_address(open_page: Open, server: httpx.Client) -> None:
    ended_run(server, command="true", name="now")
    page = open_page("/runs?since=2011-01-01T00:00:00Z&until=2011-01-02T00:00:00Z")
    expect(page.get_by_text("No run matches.")).to_be_visible()
    range_ = page.get_by_role("group", name="Time range")
    expect(range_.get_by_label("From, UTC")).to_have_value(re.compile("^2011-01-01T00:00"))
    range_.get_by_label("To, UTC").fill("2090-01-01T00:00:00")
    range_.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("until=2090-01-01T00:00:00Z"))
    expect(page.locator("tbody tr").first).to_be_visible()
    range_.get_by_role("button", name="All time").click()
    expect(page).to_have_url(re.compile("/runs$"))


def test_a_part_of_a_chart_leads_to_its_runs(open_page: Open) -> None:
    page = open_page("/")
    chart = page.locator("figure", has_text="Ended, per").locator(".u-over")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, y, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile("/runs\\?since="))
    asked = parse_qs(urlsplit(page.url).query)
    assert asked["since"] < asked["until"]
