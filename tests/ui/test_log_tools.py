"""Tools of the log: levels are marked, errors are found, and it fills the screen."""

from __future__ import annotations

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.serving import WIDE
from tests.ui.test_details import ended_run

expect.set_options(timeout=PATIENCE * 1000)
PRINTED = "\\n".join(
    [
        "INFO begun",
        '{"level": "error", "message": "of json"}',
        *(f"line {n}" for n in range(80)),
        "12:00 ERROR of a word",
        "WARN it",
    ]
)


def test_errors_in_a_log_are_marked_and_found(open_page: Open, server: httpx.Client) -> None:
    page = open_page(f"/runs/{ended_run(server, command=['printf', PRINTED])}")
    log = page.get_by_role("log")
    lines = log.locator("[data-level]")
    expect(lines.filter(has_text="of a word")).to_have_attribute("data-level", "error")
    expect(lines.filter(has_text="WARN it")).to_have_attribute("data-level", "warning")
    page.get_by_role("button", name="Next error").click()
    expect(lines.filter(has_text="of json")).to_be_in_viewport()
    page.get_by_role("button", name="Next error").click()
    expect(lines.filter(has_text="of a word")).to_be_in_viewport()
    page.get_by_role("button", name="Full screen").click()
    box = page.get_by_role("region", name="Log").bounding_box()
    assert box is not None and (box["width"], box["height"]) == (WIDE["width"], WIDE["height"])
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Full screen")).to_have_attribute("aria-pressed", "false")
