"""The form of a job: the server explains the schedule while it is typed."""

from __future__ import annotations

from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.ui.conftest import Open
from tests.ui.serving import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)


def test_a_schedule_is_explained_while_it_is_typed(open_page: Open) -> None:
    page = open_page("/jobs/new")
    page.get_by_label("Cron line").fill("30 2 * * *")
    fires = page.get_by_role("list", name="Next fires").get_by_role("listitem")
    expect(fires).to_have_count(10)
    page.get_by_label("Zone", exact=True).fill("Europe/Berln")
    expect(page.get_by_role("alert").filter(has_text="Europe/Berln")).to_be_visible()
    expect(fires).to_have_count(0)
    page.get_by_label("Zone", exact=True).fill("Europe/Berlin")
    expect(page.get_by_text("At 02:30, every day, Europe/Berlin")).to_be_visible()
    expect(page.get_by_text("02:30 does not exist on")).to_be_visible()
    page.get_by_label("Jitter").fill("soon")
    expect(page.get_by_role("alert").filter(has_text="soon")).to_be_visible()


def test_an_edit_keeps_what_the_form_does_not_change(open_page: Open, server: httpx.Client) -> None:
    job = f"e{uuid4().hex[:8]}"
    schedule = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}, "max_runs": 9}
    server.post("/v1/jobs", json={"job_id": job, "command": "true", "schedule": schedule}).raise_for_status()
    page = open_page(f"/jobs/new?edit={job}")
    page.get_by_label("Cron line").fill("45 2 * * *")
    expect(
        page.get_by_text("At 02:45, every day, Europe/Berlin, a skipped time does not run, at most 9 runs")
    ).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(job)
    found = server.get(f"/v1/jobs/{job}").json()
    assert (found["cron_expression"], found["dst"], found["max_runs"]) == ("45 2 * * *", {"gap": "skip"}, 9)
