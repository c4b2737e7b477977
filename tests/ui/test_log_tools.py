"""Tools of the log: levels are marked, errors are found, and it fills the screen."""

from __future__ import annotations

import re
from uuid import uuid4

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


def test_lines_wrap_say_their_times_and_are_linked_and_kept(open_page: Open, server: httpx.Client) -> None:
    long = "2026-07-01T07:00:00.250Z " + "word " * 120
    printed = "\\n".join(
        [*(f"row {n}" for n in range(60)), "ümlaut", long, '{"ts": 1751353200.5, "msg": "of json"}', "end"]
    )
    run = ended_run(server, command=["printf", printed])
    page = open_page(f"/runs/{run}")
    log = page.get_by_role("log")
    row = log.locator("div", has_text="word word").last
    expect(row).to_be_visible()
    assert log.evaluate("box => box.scrollWidth > box.clientWidth")
    page.get_by_role("button", name="Wrap lines").click()
    expect(row).not_to_have_css("height", "20px")
    assert log.evaluate("box => box.scrollWidth <= box.clientWidth")
    page.get_by_role("button", name="Times of lines: not shown").click()
    expect(row).to_contain_text("07:00:00.250")
    expect(log.locator("div", has_text="of json").last).to_contain_text("07:00:00.500")
    page.get_by_role("button", name="Times of lines: as a time of day").click()
    expect(row).to_contain_text(re.compile(r"[−+]\d+\.\d{3} s"))
    log.locator("[data-line]", has_text="62").click()
    expect(page).to_have_url(re.compile(r"attempt=1&at=\d+"))
    expect(page.locator("[class*=current]")).to_contain_text("word word")
    with page.expect_download() as kept:
        log.locator("[data-line]", has_text="61").click(modifiers=["Shift"])
        page.get_by_role("button", name="Download the marked lines").click()
    assert kept.value.path().read_text().splitlines()[0] == "ümlaut"

    page.get_by_role("button", name="Wrap lines").click()
    other = open_page(page.url.partition("/ui")[2])
    expect(other.locator("[class*=current]")).to_contain_text("word word")


def test_two_attempts_are_shown_side_by_side(open_page: Open, server: httpx.Client) -> None:
    command = ["sh", "-c", "echo of attempt $MAINSPRING_ATTEMPT; exit 1"]
    run = ended_run(server, command=command, retry={"max_attempts": 2, "base": "10ms"})
    page = open_page(f"/runs/{run}")
    page.get_by_label("Beside").select_option("1")
    expect(page.get_by_role("region", name="Log of attempt 1").get_by_role("log")).to_contain_text("of attempt 1")
    expect(page.get_by_role("region", name="Log", exact=True).get_by_role("log")).to_contain_text("of attempt 2")


def test_the_output_of_all_runs_is_searched(open_page: Open, server: httpx.Client) -> None:
    word = f"needle{uuid4().hex[:8]}"
    run = ended_run(server, command=["printf", f"before\\nthe {word} is here\\nafter\\n"])
    page = open_page("/logs")
    page.get_by_label("Words in the output").fill(word)
    hits = page.get_by_role("list", name="Runs whose output matches")
    hits.get_by_role("link", name=f"the {word} is here").click()
    expect(page).to_have_url(re.compile(f"/runs/{run}\\?attempt=1&at=7"))
    expect(page.locator("[class*=current]")).to_contain_text(f"the {word} is here")
