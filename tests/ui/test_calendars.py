"""Calendars: a year, rules that are edited beside the fires that they move, and the jobs that use them."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open

expect.set_options(timeout=PATIENCE * 1000)


def test_rules_are_edited_beside_the_year_and_the_fires_that_move(open_page: Open, server: httpx.Client) -> None:
    name = f"days-{uuid4().hex[:6]}"
    page = open_page("/calendars?create=1&year=2027")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Holidays").fill("Germany")
    expect(page.get_by_label("Holidays")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Holidays").fill("DE-BE")
    expect(page.get_by_label("Holidays")).not_to_have_attribute("aria-invalid", "true")
    expect(page.get_by_title("German Unity Day")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Create the calendar").click()
    expect(page).to_have_url(re.compile(f"/calendars/{name}$"))

    schedule = {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "calendar": name}
    server.post("/v1/jobs", json={"job_id": f"j-{name}", "command": "true", "schedule": schedule}).raise_for_status()
    page.goto(f"/ui/calendars/{name}?edit=1")
    expect(page.get_by_text("No fire moves")).to_be_visible()
    page.get_by_label("SUN").uncheck()
    expect(page.get_by_text("1 job would fire at other times")).to_be_visible()
    expect(page.get_by_role("link", name=f"j-{name}")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Change the calendar").click()
    expect(page.get_by_text("1 job uses it")).to_be_visible()
    weekdays = server.get(f"/v1/calendars/{name}").json()["weekdays"]
    assert weekdays == ["MON", "TUE", "WED", "THU", "FRI", "SAT"]
