"""The page Secrets: a value goes in, and never comes out."""

from __future__ import annotations

import httpx
from playwright.sync_api import expect

from tests.ui.conftest import Open
from tests.ui.serving import is_loaded
from tests.ui.test_flows import confirm
from tests.ui.test_pages import faults_of

VALUE = "s3cr3t-of-the-page"


def test_a_secret_is_stored_used_and_deleted(open_page: Open, server: httpx.Client) -> None:
    page = open_page("/secrets")
    page.get_by_role("button", name="Store a secret").click()
    page.get_by_label("Name").fill("page-token")
    page.get_by_label("Value").fill(VALUE)
    page.get_by_label("Queues").fill("default, reports")
    confirm(page, "Store")
    table = page.get_by_role("table", name="Secrets")
    expect(table).to_contain_text("queue default, queue reports")
    job = {"job_id": "uses-it", "command": "true", "schedule": "@yearly", "env": {"T": {"$secret": "page-token"}}}
    server.post("/v1/jobs", json=job).raise_for_status()
    page.get_by_role("button", name="Where page-token is used").click()
    expect(page.get_by_role("dialog").get_by_role("link", name="uses-it")).to_be_visible()
    assert VALUE not in page.content() and faults_of(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="New version of page-token").click()
    page.get_by_label("Value").fill(f"{VALUE}-2")
    confirm(page, "Store")
    expect(table).to_contain_text("2")
    page.goto("/ui/jobs/uses-it")
    is_loaded(page)
    assert faults_of(page) == []
    page.goto("/ui/secrets")
    page.get_by_role("button", name="Delete page-token").click()
    expect(page.get_by_role("dialog")).to_contain_text("uses-it")
    confirm(page, "Delete the secret")
    expect(page.get_by_text("There are no secrets yet.")).to_be_visible()
    assert server.get("/v1/secrets").json()["secrets"] == []
