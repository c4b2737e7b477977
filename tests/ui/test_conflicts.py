"""A change to what somebody else has changed since the dialog opened is refused, and the dialog says so."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.test_flows import confirm, create

expect.set_options(timeout=PATIENCE * 1000)


def refused(page: Page, verb: str) -> None:
    """The verb is refused. The dialog shows why, and closes to show what it is now."""
    dialog = page.get_by_role("dialog")
    confirm(page, verb)
    expect(dialog).to_contain_text("Somebody has changed it since this page read it")
    expect(dialog.get_by_role("button", name=verb, exact=True)).to_have_count(0)
    confirm(page, "Look at it now")
    expect(dialog).to_have_count(0)


@pytest.mark.parametrize("phone", [False, True], ids=["wide", "phone"])
def test_a_run_that_somebody_else_has_cancelled(open_page: Open, server: httpx.Client, phone: bool) -> None:
    run = create(server, task=f"nobody.{uuid4().hex[:6]}")
    page = open_page(f"/runs/{run}", phone=phone, dark=phone)
    page.get_by_role("button", name="Cancel", exact=True).click()
    server.post(f"/v1/runs/{run}:cancel", json={}).raise_for_status()
    refused(page, "Cancel the run")
    expect(page.get_by_role("button", name="Replay", exact=True)).to_be_visible()


def test_a_limit_that_somebody_else_has_set(open_page: Open, server: httpx.Client) -> None:
    task = f"limited.{uuid4().hex[:6]}"
    create(server, task=task, concurrency={"limit": 3, "per": "task"})
    [limit] = server.get("/v1/limits", params={"q": task}).json()["limits"]
    path = f"/v1/limits/{limit['limit_id']}"
    page = open_page(f"/limits?q={task}")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_label("Runs at once").fill("9")
    server.put(path, json={"limit": 5}).raise_for_status()
    refused(page, "Set the limit")
    expect(page.get_by_role("table", name="Limits")).to_contain_text("5 at once")
    assert server.get(path).json()["limit"]["limit"] == 5
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_label("Runs at once").fill("9")
    confirm(page, "Set the limit")
    expect(page.get_by_role("table", name="Limits")).to_contain_text("9 at once")


def test_a_token_that_somebody_else_has_revoked(open_page: Open, server: httpx.Client) -> None:
    made = server.post("/v1/tokens", json={"name": f"t{uuid4().hex[:6]}", "role": "viewer"}).raise_for_status().json()
    page = open_page("/access")
    page.get_by_role("button", name=f"Revoke {made['name']}").click()
    server.post(f"/v1/tokens/{made['token_id']}:revoke", json={}).raise_for_status()
    refused(page, "Revoke the token")
    expect(page.get_by_role("button", name=f"Revoke {made['name']}")).to_have_count(0)


def test_a_job_that_changed_is_not_run_now(open_page: Open, server: httpx.Client) -> None:
    job = create(server, task="shop.charge", payload={"account": "a", "cents": 1}, schedule="@yearly")
    page = open_page(f"/jobs/{job}")
    page.get_by_role("button", name="Run now", exact=True).click()
    server.patch(f"/v1/jobs/{job}", json={"payload": {"account": "b", "cents": 2}}).raise_for_status()
    refused(page, "Run now")
    assert server.get("/v1/runs", params={"job": job}).json()["runs"] == []
