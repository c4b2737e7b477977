"""The page of a workflow: it runs with parameters from a form, and says which steps decided how long it took."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open

expect.set_options(timeout=PATIENCE * 1000)
STEPS = [
    {"name": "begin", "command": "true"},
    {"name": "slow", "command": "sleep 0.4", "depends_on": ["begin"]},
    {"name": "quick", "command": "true", "depends_on": ["begin"]},
    {"name": "last", "command": "true", "depends_on": ["slow", "quick"]},
]


def test_a_workflow_runs_with_parameters_and_shows_what_decided(open_page: Open, server: httpx.Client) -> None:
    flow = f"flow-{uuid4().hex[:8]}"
    body = {"workflow_id": flow, "steps": STEPS, "parameters": {"region": "eu", "days": 3}}
    server.post("/v1/workflows", json=body).raise_for_status()
    page = open_page(f"/workflows/{flow}")
    page.get_by_role("button", name="Run now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("region").fill("us")
    dialog.get_by_label("days").fill("7")
    dialog.get_by_text("As a command").click()
    expect(dialog.get_by_role("code")).to_have_text(f"mainspring workflow run {flow} 'region=us' 'days=7'")
    dialog.get_by_role("button", name="Run now", exact=True).click()
    expect(page).to_have_url(re.compile(f"/workflows/{flow}/runs/"))
    run = page.url.rpartition("/")[2]
    until(lambda: server.get(f"/v1/workflow-runs/{run}").json()["end_time"] is not None)
    assert server.get(f"/v1/workflow-runs/{run}").json()["parameters"] == {"region": "us", "days": 7}
    page.goto(f"/ui/workflows/{flow}/runs/{run}?view=gantt")
    steps = page.get_by_role("list", name="Steps over time")
    expect(steps.get_by_role("button", name="on the critical path")).to_have_count(3)
    expect(steps.get_by_role("button", name=re.compile("^quick")).first).not_to_have_accessible_name(re.compile("path"))
    expect(page.get_by_role("img", name=re.compile("^From 0 ms to"))).to_be_visible()
    expect(page.get_by_role("note", name="Legend")).to_contain_text("decides how long")
