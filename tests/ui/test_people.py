"""People in a browser: invited, signed in with a password, with their own account."""

from __future__ import annotations

import httpx
from playwright.sync_api import expect

from tests.operations.people import OTHER, PASSWORD
from tests.ui.conftest import Open
from tests.ui.serving import is_loaded
from tests.ui.test_flows import confirm
from tests.ui.test_pages import faults_of


def test_a_person_is_invited_signs_in_and_changes_the_password(open_page: Open, server: httpx.Client) -> None:
    page = open_page("/people")
    expect(page.get_by_text("There are no people yet.")).to_be_visible()
    page.get_by_role("button", name="Invite a person").click()
    page.get_by_label("Mail address").fill("ada@example.com")
    page.get_by_label("Name").fill("Ada Lovelace")
    page.get_by_label("Role").select_option("operator")
    page.get_by_label("Your own token").fill(server.headers["Authorization"].removeprefix("Bearer "))
    confirm(page, "Invite")
    link = page.get_by_role("dialog", name="The link for Ada Lovelace").locator("pre").inner_text()
    assert "/ui/#invite=" in link
    page.keyboard.press("Escape")
    expect(page.get_by_role("table", name="People")).to_contain_text("operator of default (invited)")
    page.goto(link)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    assert "invite=" not in page.url
    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Set the password and sign in").click()
    is_loaded(page)
    page.goto("/ui/settings")
    page.get_by_role("button", name="Change the password").click()
    page.get_by_label("Password now").fill(PASSWORD)
    page.get_by_label("New password").fill(OTHER)
    confirm(page, "Change it")
    page.get_by_role("button", name="Create a personal token").click()
    page.get_by_label("Name").fill("laptop")
    page.get_by_label("Your own password").fill(OTHER)
    confirm(page, "Create")
    secret = page.get_by_role("dialog").locator("pre").inner_text()
    assert secret.startswith("ms_")
    page.keyboard.press("Escape")
    expect(page.get_by_role("table", name="Personal tokens")).to_contain_text("laptop")
    assert faults_of(page) == []
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Mail address").fill("ada@example.com")
    page.get_by_label("Password", exact=True).fill(OTHER)
    page.get_by_role("button", name="Sign in", exact=True).click()
    is_loaded(page)
    who = httpx.get(
        f"{server.base_url}".rstrip("/") + "/v1/session", headers={"Authorization": f"Bearer {secret}"}
    ).json()
    assert (who["name"], who["role"]) == ("Ada Lovelace (ada@example.com): laptop", "operator")
    [ada] = server.get("/v1/users").json()["users"]
    server.delete(f"/v1/users/{ada['user_id']}").raise_for_status()
