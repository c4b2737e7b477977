"""The list of jobs says how each of them does, and a view of a list is saved for everybody."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open

expect.set_options(timeout=PATIENCE * 1000)


def test_a_job_shows_its_last_runs_and_how_many_went_well(open_page: Open, server: httpx.Client) -> None:
    job = f"bars-{uuid4().hex[:8]}"
    payload = {"account": "a1", "cents": 1}
    body = {"job_id": job, "task": "shop.charge", "schedule": "manual", "retries": 0, "payload": payload}
    server.post("/v1/jobs", json=body).raise_for_status()
    for account in ("broken", "a1", "a1"):
        run = server.post(f"/v1/jobs/{job}:runNow", json={"payload": {"account": account, "cents": 1}}).json()["run_id"]
        until(lambda run=run: server.get(f"/v1/runs/{run}").json()["end_time"] is not None)
    page = open_page(f"/jobs?q={job}")
    page.set_viewport_size({"width": 1440, "height": 900})
    row = page.get_by_role("row").filter(has_text=job)
    expect(row.get_by_role("img", name="Last 3 runs: 1 failed")).to_be_visible()
    row.get_by_role("link", name="66.7% succeeded in 7 days").click()
    expect(page).to_have_url(re.compile(f"/runs\\?job={job}&w=7d"))
    expect(page.locator("tbody tr")).to_have_count(3)


def test_a_view_is_saved_chosen_and_deleted(open_page: Open, server: httpx.Client) -> None:
    name, owner = f"Of {uuid4().hex[:6]}", f"o{uuid4().hex[:6]}"
    for number in range(2):
        server.post(
            "/v1/jobs", json={"name": f"kept {number}", "command": "true", "schedule": "@yearly", "owner": owner}
        ).raise_for_status()
    page = open_page(f"/jobs?owner={owner}")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Save view").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    for column in ("Job", "Owner"):
        dialog.get_by_label(column, exact=True).check()
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(page).to_have_url(re.compile("view="))
    saved = server.get(f"/v1/views/{name}").json()
    assert (saved["list"], saved["filter"], saved["columns"]) == ("jobs", {"owner": owner}, ["name", "owner"])
    expect(page.get_by_role("columnheader")).to_have_count(3)
    other = open_page("/jobs", phone=True)
    other.get_by_label("View", exact=True).select_option(name)
    expect(other.locator("tbody tr")).to_have_count(2)
    expect(other).to_have_url(re.compile(f"owner={owner}"))
    other.get_by_role("button", name="Delete view").click()
    other.get_by_role("dialog").get_by_role("button", name="Delete the view").click()
    expect(other.get_by_role("dialog")).to_have_count(0)
    assert server.get(f"/v1/views/{name}").status_code == 404
