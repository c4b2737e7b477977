"""The page of one group of failures: what differs behind its title, what it hits, and verbs on all of it."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open
from tests.ui.test_details import ended_run

expect.set_options(timeout=PATIENCE * 1000)


def test_a_group_of_failures_has_a_page(open_page: Open, server: httpx.Client) -> None:
    word = f"word{uuid4().hex[:6].translate(str.maketrans('0123456789', 'ghijklmnop'))}"
    for number in (17, 18):
        ended_run(server, command=f"echo '{word} of account {number} is empty' >&2; exit 3", retries=0)

    def groups() -> list[str]:
        found = server.get("/v1/insights/failures").json()["groups"]
        return [group["fingerprint"] for group in found if word in group["title"] and group["count"] == 2]

    until(lambda: bool(groups()))
    page = open_page("/failures")
    page.get_by_role("link", name=re.compile(word)).click()
    expect(page).to_have_url(re.compile(f"/failures/{groups()[0]}$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"{word} of account # is empty")
    samples = page.get_by_role("list", name="Samples")
    expect(samples).to_contain_text(f"{word} of account 17 is empty")
    expect(samples).to_contain_text(f"{word} of account 18 is empty")
    expect(page.get_by_text("Workers of the newest runs")).to_be_visible()
    page.get_by_role("button", name="Discard all").click()
    page.get_by_role("button", name="Discard 2 dead letters").click()
    expect(page.get_by_role("dialog")).to_contain_text("Done: 2 of 2")


def test_a_group_that_is_not_there_says_so(open_page: Open) -> None:
    page = open_page("/failures/0123456789abcdef")
    expect(page.get_by_role("alert")).to_contain_text("no failure with the fingerprint")
