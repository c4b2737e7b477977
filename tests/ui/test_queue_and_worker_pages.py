"""A queue and a worker have a page: what waits and why, what runs, who takes it. A job's page explains its fires."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import ViewportSize, expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open
from tests.ui.serving import is_loaded, sign_in

expect.set_options(timeout=PATIENCE * 1000)
NARROW: ViewportSize = {"width": 1024, "height": 768}


def test_a_queue_says_why_it_is_behind_and_is_paused_with_a_reason(open_page: Open, server: httpx.Client) -> None:
    server.post("/v1/jobs", json={"command": "true", "queue": "letters"}).raise_for_status()
    page = open_page("/queues?q=letters")
    page.get_by_role("link", name="letters", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("letters")
    why = page.get_by_label("Why it is behind")
    expect(why).to_contain_text("1 run waits")
    expect(why).to_contain_text("No worker takes from this queue.")
    expect(page.get_by_text("mainspring worker --queues letters")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Reason").fill("the post office is closed")
    page.get_by_role("button", name="Pause the queue").click()
    expect(why).to_contain_text("the post office is closed")
    page.get_by_role("button", name="Limits").click()
    page.get_by_label("Runs at once").fill("3")
    page.get_by_role("button", name="Set the limits").click()
    expect(page.get_by_text("limits: 0 of 3 at once")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Resume the queue").click()
    expect(why).not_to_contain_text("closed")
    assert server.get("/v1/queues/letters").json()["limits"]["pause_reason"] is None


def test_the_page_of_a_queue_leads_to_its_workers_and_theirs_back(open_page: Open, server: httpx.Client) -> None:
    job = server.post("/v1/jobs", json={"command": "sleep 600", "name": "Long", "queue": "default"}).json()["job_id"]
    until(lambda: server.get(f"/v1/runs/{job}").json()["status"] == "RUNNING")
    page = open_page("/queues/default")
    expect(page.get_by_role("table", name="Running now")).to_contain_text("Long")
    expect(page.get_by_text("slots busy")).to_be_visible()
    for chart in ("Ended", "Wait for a start", "Waiting and running"):
        expect(page.get_by_text(chart).first).to_be_visible()
    [worker, *_] = [one for one in server.get("/v1/workers").json()["workers"] if one["state"] == "LIVE"]
    page.get_by_role("table", name="Workers of the queue").get_by_role("link", name=worker["name"]).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(worker["name"])
    expect(page.get_by_role("table", name="Running now")).to_contain_text("Long")
    expect(page.get_by_text("sandbox=").or_(page.get_by_text("none", exact=True)).first).to_be_visible()
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog")).to_contain_text("takes no more runs")
    page.get_by_role("button", name="Not now").click()
    page.get_by_role("link", name="default", exact=True).click()
    expect(page).to_have_url(str(server.base_url) + "/ui/queues/default")
    server.post(f"/v1/runs/{job}:cancel", json={}).raise_for_status()


def test_limits_of_queues_can_be_set_at_each_width(open_page: Open, server: httpx.Client) -> None:
    server.put("/v1/queues/narrow", json={"max_depth": 9}).raise_for_status()
    for size in (NARROW, {"width": 390, "height": 844}):
        page = open_page("/queues?q=narrow", phone=size["width"] < 500)
        page.set_viewport_size(size)  # type: ignore[arg-type]
        is_loaded(page)
        page.get_by_role("button", name="Set the limits of narrow").click()
        expect(page.get_by_role("dialog")).to_contain_text("Runs at once")


def test_a_job_says_why_it_did_not_run_at_a_time(open_page: Open, server: httpx.Client) -> None:
    server.post("/v1/jobs", json={"job_id": "why-me", "command": "true", "schedule": "0 3 * * *"}).raise_for_status()
    page = open_page("/jobs/why-me")
    page.get_by_role("link", name="Why", exact=True).or_(page.get_by_role("tab", name="Why")).first.click()
    expect(page.get_by_role("status").filter(has_text="bout")).to_be_visible()
    page.get_by_label("Time to explain").fill("2026-03-01T03:00")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_text("The job was created on")).to_be_visible()


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_may_not_create_a_job_is_told_before_they_fill_the_form(
    open_page: Open, server: httpx.Client, role: str
) -> None:
    page = open_page("/settings")
    token = server.post("/v1/tokens", json={"name": f"n{uuid4().hex[:6]}", "role": role}).raise_for_status().json()
    page.context.clear_cookies()
    headers = {"Authorization": f"Bearer {token['token']}"}
    with httpx.Client(base_url=server.base_url, headers=headers, timeout=PATIENCE) as client:
        sign_in(page.context, client)
    page.goto("/ui/jobs/new")
    expect(page.get_by_role("note")).to_be_in_viewport()
