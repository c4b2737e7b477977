"""A page offers what the role may do, and nothing else: no verb that the server would refuse, no page that it would."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.serving import is_loaded, sign_in

expect.set_options(timeout=PATIENCE * 1000)

LIVE = {"Run now", "Pause", "Cancel for good"}
# On each page: the verbs of an admin, and who else has them.
VERBS: dict[str, dict[str, set[str]]] = {
    "/jobs/of-roles": {**{verb: {"operator"} for verb in LIVE}, "Edit": set()},
    "/jobs": {"Create a job": {"submitter"}},
    "/queues?q=of-roles": {"Pause of-roles": {"operator"}, "Set the limits of of-roles": {"operator"}},
    "/workers": {"Drain": {"operator"}},
    "/workflows/flow-of-roles": {"Run now": {"operator"}, "Edit": set(), "Cancel for good": {"operator"}},
    "/calendars/days-of-roles": {"Edit": set(), "Delete": set()},
    "/secrets": {"Store a secret": set()},
    "/access": {"Create a token": set()},
    "/notifications?tab=channels": {"Create a channel": set()},
    "/notifications?tab=rules": {"Create a rule": set()},
}


@pytest.fixture(scope="module")
def furnished(server: httpx.Client) -> None:
    job = {"job_id": "of-roles", "command": "true", "schedule": "@yearly", "queue": "of-roles"}
    server.post("/v1/jobs", json=job).raise_for_status()
    server.put("/v1/queues/of-roles", json={"concurrency": 3}).raise_for_status()
    steps = [{"name": "one", "command": "true"}]
    flow = {"workflow_id": "flow-of-roles", "steps": steps, "schedule": "@yearly"}
    server.post("/v1/workflows", json=flow).raise_for_status()
    server.put("/v1/calendars/days-of-roles", json={"weekdays": ["MON"]}).raise_for_status()


@pytest.mark.parametrize("role", ["viewer", "submitter", "operator"])
def test_only_what_the_role_may_do_is_offered(
    open_page: Open, server: httpx.Client, furnished: None, role: str
) -> None:
    page = open_page("/settings")
    token = server.post("/v1/tokens", json={"name": f"r{uuid4().hex[:6]}", "role": role}).raise_for_status().json()
    page.context.clear_cookies()
    headers = {"Authorization": f"Bearer {token['token']}"}
    with httpx.Client(base_url=server.base_url, headers=headers, timeout=PATIENCE) as client:
        sign_in(page.context, client)
    for path, verbs in VERBS.items():
        page.goto("/ui" + path)
        is_loaded(page)
        main = page.get_by_role("main")
        expect(main.get_by_role("alert")).to_have_count(0)
        for verb, roles in verbs.items():
            name = re.compile(f"^{verb}")
            there = main.get_by_role("button", name=name).or_(main.get_by_role("link", name=name))
            if role in roles:
                expect(there.first).to_be_visible()
            else:
                expect(there, f"{verb} on {path}").to_have_count(0)
    pages = page.get_by_role("navigation", name="Pages", exact=True)
    expect(pages.get_by_role("link", name="Settings")).to_be_visible()
    expect(pages.get_by_role("link", name=re.compile("^(People|Audit)$"))).to_have_count(0)
