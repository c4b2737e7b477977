"""The pages Waiting for you and Events: a person decides, and an event shows what it has caused."""

from __future__ import annotations

from typing import Any

import httpx
from playwright.sync_api import expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open
from tests.ui.serving import is_loaded
from tests.ui.test_flows import confirm
from tests.ui.test_pages import faults_of

expect.set_options(timeout=PATIENCE * 1000)
FIELDS = {
    "version": {"type": "string", "title": "Version"},
    "share": {"type": "integer", "options": [10, 50]},
    "tested": {"type": "boolean"},
    "note": {"type": "string", "required": False},
}


def waiting(server: httpx.Client, name: str) -> tuple[str, str]:
    """The run of a workflow, and the run of its step, which waits for a decision."""
    gate: dict[str, Any] = {"approval": f"release of {name}", "fields": FIELDS, "details": {"build": "shop 1.4"}}
    ship = {"name": "ship", "command": "true", "depends_on": ["gate"]}
    body = {"workflow_id": name, "schedule": "manual", "steps": [{"name": "gate", "wait": gate}, ship]}
    server.post("/v1/workflows", json=body).raise_for_status()
    run: str = server.post(f"/v1/workflows/{name}:runNow", json={}).raise_for_status().json()["run_id"]
    found: list[str] = []

    def waits() -> bool:
        approvals = server.get("/v1/approvals").raise_for_status().json()["approvals"]
        found[:] = [one["run_id"] for one in approvals if one["workflow_id"] == name]
        return bool(found)

    until(waits)
    return run, found[0]


def test_a_person_approves_and_rejects(open_page: Open, server: httpx.Client) -> None:
    flow, step = waiting(server, "page-approves")
    page = open_page("/")
    page.get_by_role("link", name="waits for you").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Waiting for you")
    page.get_by_role("button", name="Approve release of page-approves").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("shop 1.4")
    confirm(page, "Approve")
    expect(dialog.get_by_label("Version")).to_be_focused()  # it is needed, so nothing was sent
    dialog.get_by_label("Version").fill("1.4.2")
    dialog.get_by_label("share").select_option("50")
    dialog.get_by_label("tested").select_option("Yes")
    dialog.get_by_label("Reason").fill("tested on staging")
    assert faults_of(page) == []
    confirm(page, "Approve")
    expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    result = server.get(f"/v1/runs/{step}").json()["result"]
    assert result["fields"] == {"version": "1.4.2", "share": 50, "tested": True}
    assert result["reason"] == "tested on staging"
    until(lambda: server.get(f"/v1/workflow-runs/{flow}").json()["status"] == "SUCCESS")

    flow, step = waiting(server, "page-rejects")
    page.goto(f"/ui/workflows/page-rejects/runs/{flow}?step=gate")
    page.get_by_role("button", name="Reject release of page-rejects").click()
    page.get_by_label("Reason").fill("not on a Friday")
    confirm(page, "Reject")
    until(lambda: server.get(f"/v1/runs/{step}").json()["status"] == "FAILED")
    expect(page.get_by_role("main")).to_contain_text("not on a Friday")


def test_an_event_shows_what_it_has_caused(open_page: Open, server: httpx.Client) -> None:
    together = {"size": 2, "wait": "1h"}
    when = {"event": "order.paid", "if": "payload.total > 100"}
    for job, schedule in (("ship", when), ("ship-together", when | {"batch": together})):
        server.post(
            "/v1/jobs", json={"job_id": job, "command": "true", "schedule": schedule, "retries": 0}
        ).raise_for_status()
    for key, total in (("42", 120), ("43", 1)):
        event = {"id": f"evt {key}", "name": "order.paid", "key": key, "payload": {"total": total}}
        server.post("/v1/events", json=event).raise_for_status()
    page = open_page("/events?name=order.paid")
    page.get_by_label("Key").fill("42")
    table = page.get_by_role("table", name="Events")
    expect(table.get_by_role("row")).to_have_count(2)
    table.get_by_role("link", name="order.paid").click()
    caused = page.get_by_role("table", name="What it has caused")
    expect(caused).to_contain_text("starts by")  # the other one waits for a second event
    expect(page.get_by_label("payload", exact=True)).to_contain_text("120")
    assert faults_of(page) == []
    caused.get_by_role("row").filter(has=page.get_by_role("link", name="ship", exact=True)).get_by_role(
        "link"
    ).last.click()
    expect(page.get_by_role("main")).to_contain_text("by the event evt 42")
    page.get_by_role("link", name="evt 42").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("order.paid")

    page.goto("/ui/jobs/new?edit=ship-together")
    expect(page.get_by_label("Event", exact=True)).to_have_value("order.paid")
    expect(page.get_by_label("If", exact=True)).to_have_value("payload.total > 100")
    expect(page.get_by_role("note")).to_contain_text("up to 2 events")
    before = server.get("/v1/jobs/ship-together").json()["schedule_in_words"]
    page.get_by_label("Owner").fill("ada")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("ship-together")
    after = server.get("/v1/jobs/ship-together").json()
    assert (after["owner"], after["schedule_in_words"]) == ("ada", before)
    page.goto("/ui/jobs?type=EVENT")
    is_loaded(page)
    expect(page.get_by_role("table", name="Jobs")).to_contain_text("When order.paid is emitted")
    for job in ("ship", "ship-together"):
        server.delete(f"/v1/jobs/{job}").raise_for_status()
