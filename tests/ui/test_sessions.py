"""What a page shows is of the session of its browser, also when that becomes another one."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.serving import is_loaded, sign_in

expect.set_options(timeout=PATIENCE * 1000)


def job(client: httpx.Client) -> str:
    name = f"Job {uuid4().hex[:6]}"
    client.post("/v1/jobs", json={"name": name, "command": "true", "schedule": "0 0 1 1 *"}).raise_for_status()
    return name


def other_tenant(server: httpx.Client) -> httpx.Client:
    made = server.post("/v1/tenants", json={"name": f"t{uuid4().hex[:6]}"}).raise_for_status().json()
    token = {"Authorization": f"Bearer {made['admin_token']['token']}"}
    return httpx.Client(base_url=server.base_url, headers=token, timeout=PATIENCE)


def link(client: httpx.Client) -> str:
    path: str = client.post("/v1/session/links", json={}).raise_for_status().json()["path"]
    return path


def shows(page: Page, name: str) -> None:
    expect(page.get_by_role("table").get_by_text(name)).to_be_visible()


def test_a_tab_follows_when_another_tab_signs_in_to_another_tenant(open_page: Open, server: httpx.Client) -> None:
    with other_tenant(server) as other:
        own, others = job(server), job(other)
        page = open_page("/jobs")
        shows(page, own)
        second = page.context.new_page()
        second.goto(link(other))
        who = other.get("/v1/session").json()
        tenant = who["tenant"]
        second.get_by_role("button", name=f"Sign in as {who['name']}").click()
        for shown in (second, page):
            expect(shown.get_by_title(f"admin of {tenant}")).to_be_visible()
        assert "code=" not in second.url
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
        page.unroute_all(behavior="ignoreErrors")


def test_a_viewer_is_told_that_it_changes_nothing(open_page: Open, server: httpx.Client) -> None:
    name = job(server)
    token = server.post("/v1/tokens", json={"name": f"v{uuid4().hex[:6]}", "role": "viewer"}).raise_for_status().json()
    viewer = {"Authorization": f"Bearer {token['token']}"}
    page = open_page("/").context.new_page()
    with httpx.Client(base_url=server.base_url, headers=viewer, timeout=PATIENCE) as client:
        page.goto(link(client))
    page.get_by_role("button", name=f"Sign in as {token['name']}").click()
    expect(page.get_by_title("viewer of")).to_be_visible()
    page.goto("/ui/jobs")
    page.get_by_role("table").get_by_text(name).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    expect(page.get_by_role("button", name=re.compile("Pause|Run now|Cancel for good"))).to_have_count(0)
    page.goto("/ui/jobs/new")
    expect(page.get_by_role("note")).to_contain_text("viewers look, and change nothing")
    expect(page.get_by_role("button", name="Create", exact=True)).to_be_disabled()


@pytest.mark.parametrize("same_document", [False, True], ids=["a new page", "the page that is open"])
def test_a_link_of_a_stranger_asks_before_it_replaces_a_session(
    open_page: Open, server: httpx.Client, same_document: bool
) -> None:
    with other_tenant(server) as stranger:
        who, own = (client.get("/v1/session").json() for client in (stranger, server))
        page = open_page("/jobs")
        opened = link(stranger)
        if same_document:
            page.goto("/ui/")
            expect(page.get_by_title(f"admin of {own['tenant']}")).to_be_visible()
        page.goto(opened)
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_have_text(f"Sign in as {who['name']} of tenant {who['tenant']}?")
        expect(page.get_by_role("main")).to_contain_text(f"signed in as {own['name']}: admin of tenant {own['tenant']}")
        assert "code=" not in page.url
        page.get_by_role("button", name="Stay signed in").click()
        expect(page.get_by_title(f"admin of {own['tenant']}")).to_be_visible()
        page.reload()
        expect(page.get_by_title(f"admin of {own['tenant']}")).to_be_visible()
        # Somebody who wants it says so, and the link still works for that.
        page.goto("about:blank")
        page.goto(opened)
        page.get_by_role("button", name="Sign in as").click()
        expect(page.get_by_title(f"admin of {who['tenant']}")).to_be_visible()


def test_a_link_that_is_not_valid_leaves_the_session_as_it_is(open_page: Open, server: httpx.Client) -> None:
    own = server.get("/v1/session").json()
    page = open_page("/jobs")
    page.goto("about:blank")
    page.goto("/ui/#code=used-before")
    expect(page.get_by_role("status").get_by_text("still signed in")).to_be_visible()
    expect(page.get_by_title(f"admin of {own['tenant']}")).to_be_visible()


def test_without_a_session_the_page_says_as_whom_a_link_has_signed_in(open_page: Open, server: httpx.Client) -> None:
    with other_tenant(server) as stranger:
        who = stranger.get("/v1/session").json()
        page = open_page("/jobs")
        page.context.clear_cookies()
        page.goto("about:blank")
        page.goto(link(stranger))
        said = f"Signed in as {who['name']}: admin of tenant {who['tenant']}."
        expect(page.get_by_role("status").get_by_text(said)).to_be_visible()


def test_a_token_that_outlives_the_session_needs_the_own_one_typed_again(open_page: Open, server: httpx.Client) -> None:
    page = open_page("/access")
    own = server.headers["Authorization"].removeprefix("Bearer ")
    page.get_by_role("button", name="Create a token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("eyes of a browser")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_contain_text("a session makes no token that outlives it")
    dialog.get_by_label("Your own token").fill(own)
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="The secret of eyes of a browser")).to_be_visible()


def test_characters_that_hide_or_turn_a_name_are_shown(open_page: Open, server: httpx.Client) -> None:
    """The name of a job, read from left to right, says what it is, in text, tooltips and the title of the page."""
    hostile = f"pay \u202eyrassecca\u2066\u200b {uuid4().hex[:6]}"
    shown = hostile.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066").replace("\u200b", "\\u200b")
    made = {"name": hostile, "command": "true", "schedule": "0 0 1 1 *", "owner": hostile}
    job_id = server.post("/v1/jobs", json=made).raise_for_status().json()["job_id"]
    page = open_page("/jobs")
    expect(page.get_by_role("table").get_by_role("link", name=shown)).to_be_visible()
    page.goto(f"/ui/jobs/{job_id}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(shown)
    for path in (f"/ui/jobs/{job_id}", "/ui/jobs", "/ui/upcoming"):
        page.goto(path)
        is_loaded(page)
        seen = page.evaluate(
            "() => document.title + document.body.innerText + [...document.querySelectorAll('*')]"
            ".flatMap(e => [e.title, e.getAttribute('aria-label'), e.getAttribute('placeholder')]).join('|')"
        )
        assert not re.search("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069]", seen)
    # What is edited is the name itself.
    page.goto(f"/ui/jobs/new?edit={job_id}")
    expect(page.get_by_label("Name", exact=True)).to_have_value(hostile)


def test_a_viewer_sees_no_secrets_of_jobs(open_page: Open, server: httpx.Client) -> None:
    """An admin does."""
    name, secret = f"masked-{uuid4().hex[:6]}", f"s3cr3t-{uuid4().hex}"
    call = {"url": "https://example.com/hook", "headers": {"X-Team": "billing", "Authorization": f"Bearer {secret}"}}
    server.post("/v1/jobs", json={"job_id": name, "http": call, "schedule": "@yearly"}).raise_for_status()
    page = open_page(f"/jobs/{name}?tab=definition")
    shown = page.get_by_role("main")
    expect(shown).to_contain_text(secret)
    token = server.post("/v1/tokens", json={"name": f"v{uuid4().hex[:6]}", "role": "viewer"}).raise_for_status().json()
    viewer = {"Authorization": f"Bearer {token['token']}"}
    with httpx.Client(base_url=server.base_url, headers=viewer, timeout=PATIENCE) as client:
        page.context.clear_cookies()
        sign_in(page.context, client)
    page.reload()
    expect(page.get_by_title("viewer of")).to_be_visible()
    expect(shown).to_contain_text('"X-Team":"billing","Authorization":"***"')
    assert secret not in page.content()
