"""A workflow is edited beside its graph, problems name their line, and two versions are compared."""

from __future__ import annotations

from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open

expect.set_options(timeout=PATIENCE * 1000)
STEP = '{"name": "extract", "command": "true"}'
TWO = f'{{"steps": [\n{STEP},\n{{"name": "load", "command": "true", "depends_on": ["EXTRACT"]}}\n]}}'


def test_steps_are_checked_while_one_types_and_versions_are_compared(open_page: Open, server: httpx.Client) -> None:
    flow = f"edited-{uuid4().hex[:6]}"
    steps = [{"name": "extract", "command": "true"}]
    server.post("/v1/workflows", json={"workflow_id": flow, "steps": steps}).raise_for_status()
    page = open_page(f"/workflows/{flow}")
    page.get_by_role("button", name="Edit").click()
    text = page.get_by_label("Steps and parameters", exact=True)
    expect(text).to_have_value('parameters: {}\nsteps:\n- name: extract\n  command: "true"\n')
    text.fill("steps:\n- name: extract\n  command: true\n  command: false\n")
    expect(page.get_by_text("command occurs twice")).to_be_visible()
    expect(page.get_by_role("button", name="Line 4")).to_be_visible()
    text.fill('{"steps": [\n{"name": "extract",\n')
    expect(page.get_by_role("button", name="Line 3")).to_be_visible()
    text.fill(TWO)
    expect(page.get_by_role("button", name="Line 3")).to_be_visible()
    expect(page.get_by_text("steps[1].depends_on")).to_be_visible()
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    text.fill(TWO.replace("EXTRACT", "extract"))
    expect(page.get_by_text("valid: 2 steps, 2 layers")).to_be_visible()
    expect(page.get_by_role("button", name="load")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Change the workflow").click()
    page.get_by_role("link", name="Versions").click()
    expect(page.get_by_role("region", name="Step load").get_by_text("is new")).to_be_visible()
    assert [one["name"] for one in server.get(f"/v1/workflows/{flow}").json()["steps"]] == ["extract", "load"]
    before = server.get(f"/v1/workflows/{flow}", params={"definition": 1}).json()
    assert ([one["name"] for one in before["steps"]], before["definition_version"]) == (["extract"], 1)
    assert server.get(f"/v1/workflows/{flow}", params={"definition": 3}).status_code == 404
