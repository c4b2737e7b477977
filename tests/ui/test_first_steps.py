"""What helps a person who is new or busy: the first steps, any time zone, keys, and commands to take along."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.test_details import ended_run
from tests.ui.test_sessions import link, other_tenant

expect.set_options(timeout=PATIENCE * 1000)


def test_an_empty_installation_leads_through_the_first_steps(open_page: Open, server: httpx.Client) -> None:
    with other_tenant(server) as stranger:
        page = open_page(link(stranger).removeprefix("/ui"))
        page.get_by_role("button", name=re.compile("^Sign in as")).click()
        steps = page.get_by_role("list", name="First steps").get_by_role("listitem")
        expect(steps.nth(1)).to_have_accessible_name("A first job, to do")
        expect(steps.nth(1)).to_contain_text("mainspring submit --command 'echo hello' --name hello")
        stranger.post("/v1/jobs", json={"command": "echo hello", "name": "hello"}).raise_for_status()
        expect(steps.nth(1)).to_have_accessible_name("A first job, done")
        expect(steps.nth(1)).to_contain_text("as soon as a worker is free")  # the stranger has none
        with page.expect_response(re.compile(r"/v1/jobs\?.*SCHEDULED")):  # which has the first job
            expect(steps.nth(2)).to_have_accessible_name("A schedule, to do")
        expect(steps.nth(2)).to_have_accessible_name("A schedule, to do")
        every = {"command": "date", "schedule": "*/5 * * * *", "name": "every-five"}
        stranger.post("/v1/jobs", json=every).raise_for_status()
        expect(steps.nth(2)).to_have_accessible_name("A schedule, done")
        expect(steps.nth(2).get_by_role("link", name="every-five")).to_be_visible()
        page.get_by_role("button", name="Close the first steps").click()
        expect(steps).to_have_count(0)


def test_times_are_shown_in_any_zone(open_page: Open, server: httpx.Client) -> None:
    page = open_page("/jobs")
    page.get_by_label("Time zone").select_option("Another zone…")
    zone = page.get_by_label("Another zone")
    zone.fill("Europe/Nowhere")
    page.get_by_role("button", name="Show times in it").click()
    expect(page.get_by_role("alert")).to_contain_text("Europe/Berlin")
    zone.fill("australia/eucla")
    page.get_by_role("button", name="Show times in it").click()
    expect(page.get_by_label("Time zone")).to_have_value("Australia/Eucla")
    expect(page.get_by_role("main")).to_contain_text("+08:45")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("t")
    expect(page.get_by_label("Time zone")).to_have_value("utc")


def test_keys_pause_a_job_and_move_in_a_log(open_page: Open, server: httpx.Client) -> None:
    job = f"keys-{uuid4().hex[:8]}"
    server.post("/v1/jobs", json={"job_id": job, "command": "true", "schedule": "0 0 1 1 *"}).raise_for_status()
    page = open_page(f"/jobs/{job}")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press(".")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("As a command").click()
    expect(dialog.get_by_role("code")).to_have_text(f"mainspring job pause {job}")
    dialog.get_by_role("button", name="curl").click()
    expect(dialog.get_by_role("code")).to_contain_text(
        f"curl -X POST {str(server.base_url).rstrip('/')}/v1/jobs/{job}:pause"
    )
    dialog.get_by_role("button", name="Python").click()
    expect(dialog.get_by_role("code")).to_contain_text(f'client.pause("{job}")')
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Paused")

    page.goto(f"/ui/runs/{ended_run(server, command=['seq', '1', '400'])}?find=77")
    status = page.get_by_role("region", name="Log").get_by_role("status")
    expect(status).to_have_text("1/4")
    page.get_by_role("heading", level=1).click(position={"x": 1, "y": 1})
    page.keyboard.press("n")
    expect(status).to_have_text("2/4")
    page.keyboard.press("N")
    expect(status).to_have_text("1/4")
    page.keyboard.press("f")
    expect(page.get_by_role("log").get_by_text("400", exact=True).last).to_be_in_viewport()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("previous match in the log")
