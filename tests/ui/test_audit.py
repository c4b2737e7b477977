"""Who changed what, on the page Audit, at a job, and at a queue; and runs by values of their payload."""

from __future__ import annotations

import httpx
from playwright.sync_api import expect

from tests.ui.conftest import Open


def test_changes_are_shown_with_what_they_replaced(open_page: Open, server: httpx.Client) -> None:
    job = {"job_id": "audited", "command": "true", "schedule": "@daily", "env": {"A_TOKEN": "s3cret", "MODE": "dry"}}
    server.post("/v1/jobs", json=job).raise_for_status()
    changed = {"env": {"A_TOKEN": "other", "MODE": "wet"}, "queue": "bulk"}
    server.patch("/v1/jobs/audited", json=changed).raise_for_status()
    server.post("/v1/queues/audited-queue:pause").raise_for_status()
    page = open_page("/jobs/audited?tab=history")
    row = page.get_by_role("row").filter(has_text="jobs.update")
    expect(row).to_contain_text("env.MODE")
    expect(row.locator("del").filter(has_text="dry")).to_be_visible()
    expect(row.locator("ins").filter(has_text="wet")).to_be_visible()
    expect(page.get_by_text("s3cret")).to_have_count(0)
    page.goto("/ui/audit?kind=queue&id=audited-queue")
    expect(page.get_by_role("row").filter(has_text="queues.pause")).to_contain_text("paused")


def test_runs_are_found_by_a_value_of_their_payload(open_page: Open, server: httpx.Client) -> None:
    for account in (42, 43):
        payload = {"task": "nowhere", "name": f"of {account}", "payload": {"account": account}, "search": ["account"]}
        server.post("/v1/jobs", json=payload).raise_for_status()
    page = open_page("/runs?payload=account%3D42")
    expect(page.get_by_role("link", name="of 42")).to_be_visible()
    expect(page.get_by_role("link", name="of 43")).to_have_count(0)
