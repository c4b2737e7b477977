"""The page Notifications: channels and rules are made, changed and deleted, and a refusal is beside its field."""

from __future__ import annotations

import httpx
from playwright.sync_api import Page, expect

from tests.ui.conftest import Open
from tests.ui.test_flows import confirm as press
from tests.ui.test_pages import faults_of

KEY = "k3y-of-the-webhook"
HOOK = {"kind": "webhook", "url": "https://example.com/hook", "secret": KEY}


def confirm(page: Page, verb: str) -> None:
    press(page, verb)
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_channel_is_created_tested_changed_and_deleted(open_page: Open, server: httpx.Client) -> None:
    page = open_page("/notifications?tab=channels")
    page.get_by_role("button", name="Create a channel").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("page-hook")
    dialog.get_by_label("Kind").select_option("webhook")
    dialog.get_by_label("Address").fill("ftp://example.com")
    dialog.get_by_label("Key").fill(KEY)
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_label("Address")).to_have_attribute("aria-invalid", "true")
    assert faults_of(page) == []
    dialog.get_by_label("Address").fill("http://127.0.0.1:9/hook")
    confirm(page, "Create")
    table = page.get_by_role("table", name="Channels")
    expect(table).to_contain_text("page-hook")
    page.get_by_role("button", name="Test page-hook").click()
    dialog.get_by_role("button", name="Send a test message").click()
    expect(dialog.get_by_role("alert")).to_contain_text("did not take a test message")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Edit page-hook").click()
    assert dialog.get_by_label("Key").input_value() == ""
    dialog.get_by_label("Description").fill("tells nobody")
    confirm(page, "Save")
    shown = server.get("/v1/channels/page-hook").json()
    assert (shown["description"], shown["secrets"], shown["version"]) == ("tells nobody", ["secret"], 2)
    page.get_by_role("button", name="Edit page-hook").click()
    server.put("/v1/channels/page-hook", json=HOOK).raise_for_status()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Somebody has changed it")
    dialog.get_by_role("button", name="Look at it now").click()
    page.get_by_role("button", name="Create a channel").click()
    dialog.get_by_label("Name").fill("page-hook")
    dialog.get_by_label("Address of the webhook").fill("https://example.com/other")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_label("Name")).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete page-hook").click()
    confirm(page, "Delete the channel")
    expect(page.get_by_text("No channels")).to_be_visible()
    assert KEY not in page.content()


def test_a_rule_is_created_muted_changed_and_deleted(open_page: Open, server: httpx.Client) -> None:
    server.put("/v1/channels/rules-hook", json=HOOK).raise_for_status()
    page = open_page("/notifications?tab=rules", phone=True)
    page.get_by_role("button", name="Create a rule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("page-rule")
    dialog.get_by_label("no_worker").check()
    dialog.get_by_label("rules-hook").first.check()
    dialog.get_by_text("Which runs it is about").click()
    dialog.get_by_label("Queue", exact=True).fill("default")
    dialog.get_by_text("When it tells").click()
    dialog.get_by_label("Repeat interval").fill("often")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_label("Repeat interval")).to_have_attribute("aria-invalid", "true")
    assert faults_of(page) == []
    dialog.get_by_label("Repeat interval").fill("2h")
    dialog.get_by_label("Quiet from").fill("22:00")
    dialog.get_by_label("Quiet to").fill("07:00")
    dialog.get_by_label("SAT").check()
    confirm(page, "Create")
    made = server.get("/v1/rules/page-rule").json()
    assert (made["on"], made["to"], made["queue"]) == (["failure", "recovered", "no_worker"], ["rules-hook"], "default")
    assert made["repeat_interval"] == 7200 and made["quiet"]["days"] == ["SAT"]
    page.get_by_role("button", name="Mute page-rule").click()
    dialog.get_by_label("For").fill("2 weeks ago")
    dialog.get_by_role("button", name="Mute the rule").click()
    expect(dialog.get_by_label("For")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("For").fill("2h")
    confirm(page, "Mute the rule")
    page.get_by_role("button", name="Unmute page-rule").click()
    confirm(page, "Unmute the rule")
    page.get_by_role("button", name="Edit page-rule").click()
    dialog.get_by_label("Description").fill("at night")
    confirm(page, "Save")
    after = server.get("/v1/rules/page-rule").json()
    kept = {name for name in made if name not in ("version", "updated_at")}
    assert {name: after[name] for name in kept} == {name: made[name] for name in kept}
    assert after["description"] == "at night"
    page.get_by_role("button", name="Delete page-rule").click()
    confirm(page, "Delete the rule")
    expect(page.get_by_text("No rules")).to_be_visible()
    server.delete("/v1/channels/rules-hook").raise_for_status()
