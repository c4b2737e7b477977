"""Pages to read: the API document, the trend of a job, the sessions."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open

expect.set_options(timeout=PATIENCE * 1000)


def test_the_api_document_is_browsed(open_page: Open) -> None:
    page = open_page("/settings")
    page.goto("/docs")
    expect(page).to_have_url(re.compile("/ui/docs$"))
    page.get_by_label("Search the operations").fill("pause queue")
    links = page.get_by_role("main").get_by_role("listitem").get_by_role("link")
    expect(links.filter(has_text="Pause a queue")).to_have_count(1)
    page.get_by_label("Search the operations").fill("create jobs")
    page.get_by_role("link", name="Create a job", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Create a job")
    command = page.get_by_label("Command", exact=True)
    expect(command).to_contain_text("-X POST")
    expect(command).to_contain_text("Authorization: Bearer $TOKEN")
    page.get_by_label("Body").fill('{"task": "it\'s"}')
    expect(command).to_contain_text("it'\\''s")
    page.get_by_role("link", name="422").click()
    expect(page.get_by_role("main")).to_contain_text("invalid_cron")


def test_a_read_is_sent_from_the_document(open_page: Open, server: httpx.Client) -> None:
    job = server.post("/v1/jobs", json={"job_id": f"d{uuid4().hex[:8]}", "command": "true", "schedule": "@yearly"})
    name = job.raise_for_status().json()["job_id"]
    page = open_page("/docs?op=getJob", phone=True, dark=True)
    page.get_by_label("job_id *").fill(name)
    page.get_by_role("button", name="Send it as you").click()
    expect(page.get_by_label("Answer", exact=True)).to_contain_text(f'"job_id": "{name}"')
    page.get_by_label("job_id *").fill("there is none")
    page.get_by_role("button", name="Send it as you").click()
    expect(page.get_by_label("Answer", exact=True)).to_contain_text("not_found")


def test_the_trend_of_a_job_is_shown(open_page: Open, server: httpx.Client) -> None:
    job = server.post("/v1/jobs", json={"job_id": f"t{uuid4().hex[:8]}", "command": "true", "schedule": "manual"})
    name = job.raise_for_status().json()["job_id"]
    server.post(f"/v1/jobs/{name}:runNow", json={}).raise_for_status()
    until(lambda: server.get(f"/v1/jobs/{name}/series").json()["totals"]["succeeded"] == 1)
    page = open_page(f"/jobs/{name}?w=1h")
    expect(page.get_by_text("100% of 1 run succeeded")).to_be_visible()
    for title in ("Duration", "Start lag"):
        expect(page.get_by_role("figure", name=title)).to_be_visible()
    page.get_by_role("group", name="Window").get_by_role("button", name="30d").click()
    expect(page).to_have_url(re.compile("w=30d"))
    expect(page.get_by_role("list", name="The last 1 run, newest first").get_by_role("link")).to_have_count(1)


def test_a_session_is_ended(open_page: Open, server: httpx.Client) -> None:
    made = (
        server.post("/v1/tokens", json={"role": "viewer", "name": f"eyes {uuid4().hex[:6]}"}).raise_for_status().json()
    )
    browser = httpx.Client(base_url=server.base_url, timeout=PATIENCE)
    with browser:
        own = {"Origin": str(server.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        browser.post("/v1/session", json={"token": made["token"]}, headers=own).raise_for_status()
        page = open_page("/access")
        sessions = page.get_by_role("table", name="Sessions")
        expect(sessions).to_contain_text("(this browser)")
        page.get_by_role("button", name=f"End the session of {made['name']}").click()
        page.get_by_role("dialog").get_by_role("button", name="End the session", exact=True).click()
        expect(sessions).not_to_contain_text(made["name"])
        assert browser.get("/v1/session").status_code == 401
