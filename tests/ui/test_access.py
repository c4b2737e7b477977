"""The page of a submitter, the form that makes narrowed tokens, and quotas of tenants."""

from __future__ import annotations

from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.test_sessions import job, link

expect.set_options(timeout=PATIENCE * 1000)


def test_a_submitter_changes_its_own_jobs_and_looks_at_others(open_page: Open, server: httpx.Client) -> None:
    name = f"ci {uuid4().hex[:6]}"
    made = server.post("/v1/tokens", json={"role": "submitter", "name": name}).raise_for_status().json()
    token = {"Authorization": f"Bearer {made['token']}"}
    with httpx.Client(base_url=server.base_url, headers=token, timeout=PATIENCE) as submitter:
        theirs, own = job(server), job(submitter)
        page = open_page("/jobs")
        page.goto(link(submitter))
        page.get_by_role("button", name=f"Sign in as {name}").click()
        expect(page.get_by_title("submitter of default")).to_be_visible()
        for shown, may in ((own, True), (theirs, False)):
            page.goto("/ui/jobs")
            page.get_by_role("link", name=shown).click()
            expect(page.get_by_role("heading", level=1)).to_contain_text(shown)
            expect(page.get_by_role("button", name="Run now")).to_have_count(int(may))
            expect(page.get_by_role("button", name="Pause")).to_have_count(int(may))
        page.goto("/ui/jobs")
        page.get_by_role("link", name=own).click()
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("dialog").get_by_role("button", name="Pause")).to_be_enabled()


def test_the_form_makes_a_narrowed_token(open_page: Open, server: httpx.Client) -> None:
    name = f"narrow {uuid4().hex[:6]}"
    page = open_page("/access")
    page.get_by_role("button", name="Create a token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Expires in").fill("1h")
    dialog.get_by_text("Narrow it to a part of the tenant").click()
    dialog.get_by_label("Queues").fill("payments, mail")
    dialog.get_by_label("Labels").fill("team=payments")
    dialog.get_by_label("Payloads").select_option("hidden")
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_text("ms_").first).to_be_visible()
    [made] = [one for one in server.get("/v1/tokens").json()["tokens"] if one["name"] == name]
    assert (made["queues"], made["labels"], made["payloads"]) == (["payments", "mail"], {"team": "payments"}, False)


def test_quotas_of_a_tenant_are_set_and_shown_with_their_use(open_page: Open, server: httpx.Client) -> None:
    name = f"quota-{uuid4().hex[:6]}"
    server.post("/v1/tenants", json={"name": name}).raise_for_status()
    page = open_page("/access")
    page.get_by_label("Tenant", exact=True).select_option(name)
    expect(page.get_by_role("heading", name=f"Quotas of {name}")).to_be_visible()
    page.get_by_role("button", name="Set quotas").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Tokens").fill("1")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_text("100% used")).to_be_visible()
    usage = server.get(f"/v1/tenants/{name}/usage").json()
    assert {one["quota"]: one["limit"] for one in usage["quotas"] if one["limit"] is not None} == {"tokens": 1}
