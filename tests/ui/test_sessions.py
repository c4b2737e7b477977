"""What a page shows is of the session of its browser, also when that becomes another one."""

from __future__ import annotations

from uuid import uuid4

import httpx
from playwright.sync_api import Page, expect

from tests.ui.conftest import Open
from tests.ui.serving import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)


def job(client: httpx.Client) -> str:
    name = f"Job {uuid4().hex[:6]}"
    client.post("/v1/jobs", json={"name": name, "command": "true", "schedule": "0 0 1 1 *"}).raise_for_status()
    return name


def other_tenant(server: httpx.Client) -> httpx.Client:
    made = server.post("/v1/tenants", json={"name": f"t{uuid4().hex[:6]}"}).raise_for_status().json()
    token = {"Authorization": f"Bearer {made['admin_token']['token']}"}
    return httpx.Client(base_url=server.base_url, headers=token, timeout=PATIENCE)


def shows(page: Page, name: str) -> None:
    expect(page.get_by_role("table").get_by_text(name)).to_be_visible()


def test_a_tab_follows_when_another_tab_signs_in_to_another_tenant(open_page: Open, server: httpx.Client) -> None:
    with other_tenant(server) as other:
        own, others = job(server), job(other)
        page = open_page("/jobs")
        shows(page, own)
        second = page.context.new_page()
        second.goto(other.post("/v1/session/links", json={}).raise_for_status().json()["path"])
        tenant = other.get("/v1/session").json()["tenant"]
        for shown in (second, page):
            expect(shown.get_by_title(f"admin of {tenant}")).to_be_visible()
        shows(page, others)
        expect(page.get_by_text(own)).to_have_count(0)


def test_who_signs_in_after_another_sees_nothing_of_it(open_page: Open, server: httpx.Client) -> None:
    with other_tenant(server) as other:
        own = job(server)
        page = open_page("/jobs")
        shows(page, own)
        sessions = server.get("/v1/sessions").raise_for_status().json()["sessions"]
        server.post(f"/v1/sessions/{sessions[0]['session_id']}:end", json={}).raise_for_status()
        page.get_by_label("Token").fill(other.headers["Authorization"].removeprefix("Bearer "))
        page.route("**/v1/jobs?*", lambda route: None)  # the answer takes long: what is shown until then?
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
        expect(page.get_by_text(own)).to_have_count(0)
        page.unroute_all()


def test_a_viewer_is_told_that_it_changes_nothing(open_page: Open, server: httpx.Client) -> None:
    name = job(server)
    token = server.post("/v1/tokens", json={"name": f"v{uuid4().hex[:6]}", "role": "viewer"}).raise_for_status().json()
    viewer = {"Authorization": f"Bearer {token['token']}"}
    link = httpx.post(f"{server.base_url}/v1/session/links", json={}, headers=viewer, timeout=PATIENCE)
    page = open_page("/").context.new_page()
    page.goto(link.raise_for_status().json()["path"])
    expect(page.get_by_title("viewer of")).to_be_visible()
    page.goto("/ui/jobs")
    page.get_by_role("table").get_by_text(name).click()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("note")).to_contain_text("viewers look, and change nothing")
    expect(page.get_by_role("dialog").get_by_role("button", name="Pause")).to_be_disabled()
    page.goto("/ui/jobs/new")
    expect(page.get_by_role("button", name="Create", exact=True)).to_be_disabled()
