"""The page of operations: verbs on many things, backfills, and how one gets there."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open
from tests.ui.serving import is_loaded

expect.set_options(timeout=PATIENCE * 1000)


def create(server: httpx.Client, **fields: object) -> str:
    made: str = server.post("/v1/jobs", json=fields).raise_for_status().json()["job_id"]
    return made


@pytest.mark.parametrize("phone", [False, True], ids=["wide and light", "phone and dark"])
def test_an_operation_is_found_with_what_refused_it(open_page: Open, server: httpx.Client, phone: bool) -> None:
    queue = f"ops-{uuid4().hex[:8]}"
    fine, gone = (create(server, command="true", schedule="@yearly", queue=queue) for _ in range(2))
    server.delete(f"/v1/jobs/{gone}").raise_for_status()
    chosen = {"verb": "pause", "ids": [fine, gone], "expected": 2}
    operation = server.post("/v1/jobs:act", json=chosen).raise_for_status().json()["id"]
    until(lambda: server.get(f"/v1/operations/{operation}").json()["ended_at"] is not None)
    page = open_page("/operations", phone=phone, dark=phone)
    page.get_by_role("table", name="Operations").get_by_role("link", name="Pause 2 jobs").first.click()
    assert f"op={operation}" in page.url
    expect(page.get_by_role("status").filter(has_text="1 of 2 done, 1 refused")).to_be_visible()
    refused = page.get_by_role("region", name="Refused")
    expect(refused).to_contain_text("CANCELLED")
    refused.get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"/ui/jobs/{gone}$"))
    page.go_back()
    page.get_by_role("button", name="Close the details").click()
    expect(page).to_have_url(re.compile(r"/ui/operations$"))


def test_the_dialog_of_a_verb_leads_to_its_operation(open_page: Open, server: httpx.Client) -> None:
    queue = f"ops-{uuid4().hex[:8]}"
    create(server, command="true", schedule="@yearly", queue=queue)
    page = open_page(f"/jobs?queue={queue}")
    page.get_by_role("checkbox", name="Select all rows of this page").check()
    page.get_by_role("toolbar").get_by_role("button", name="Pause", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Pause 1 job").click()
    dialog.get_by_role("link", name="Details").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Operations")
    expect(page.get_by_role("status").filter(has_text="1 of 1 done")).to_be_visible()


def test_a_running_operation_is_stopped(open_page: Open, server: httpx.Client) -> None:
    page = open_page("/settings")
    [shape] = server.get("/v1/operations?limit=1").json()["operations"] or [_operation(server)]
    running = {**shape, "state": "RUNNING", "ended_at": None, "done": 3, "count": 10, "failed": 0, "failures": []}
    asked: list[str] = []
    page.route("**/v1/operations?*", lambda route: route.fulfill(json={"operations": [running]}))
    page.route("**/v1/operations/*", lambda route: asked.append(route.request.url) or route.fulfill(json=running))
    page.goto("/ui/operations")
    page.get_by_role("button", name=re.compile("^Stop ")).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop the operation").click()
    expect(page.get_by_text("The operation is stopped.")).to_be_visible()
    assert any(url.endswith(":cancel") for url in asked)
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize("phone", [False, True], ids=["wide and light", "phone and dark"])
def test_missed_fires_are_made_up_for(open_page: Open, server: httpx.Client, phone: bool) -> None:
    name = f"Every second {uuid4().hex[:8]}"
    job = create(server, command="true", schedule="* * * * * *", name=name)
    server.post(f"/v1/jobs/{job}:pause", json={}).raise_for_status()
    until(lambda: _resumed_with_missed_fires(server, job))
    page = open_page(f"/missed?q={name.upper()}", phone=phone, dark=phone)
    table = page.get_by_role("table", name="Missed fires")
    table.get_by_role("button", name=re.compile("^Backfill")).first.click()
    dialog = page.get_by_role("dialog")
    assert dialog.evaluate("shown => shown.scrollWidth <= shown.clientWidth"), "a dialog in a cell wraps its text"
    dialog.get_by_role("button", name="Start the backfill").click()
    expect(page).to_have_url(re.compile(r"/ui/operations\?tab=backfills&backfill="))
    expect(page.get_by_role("status").filter(has_text="succeeded")).to_be_visible()
    backfill = page.url.rpartition("=")[2]
    run = next(run for run in server.get(f"/v1/jobs/{job}/runs").json() if run["trigger"].startswith("backfill"))
    page.goto(f"/ui/runs/{run['run_id']}")
    page.get_by_role("main").get_by_role("link", name=f"…{backfill[-6:]}").click()
    expect(page).to_have_url(re.compile(f"backfill={backfill}"))
    page.goto(f"/ui/missed?q={name}")
    expect(table.get_by_role("link", name=f"…{backfill[-6:]}").first).to_be_visible()
    server.delete(f"/v1/jobs/{job}").raise_for_status()


def test_every_attempt_shows_what_it_used(open_page: Open, server: httpx.Client) -> None:
    retry = {"max_attempts": 2, "base": "10ms"}
    job = create(server, command="exit 1", retry=retry)
    until(lambda: bool(server.get(f"/v1/runs/{job}").json()["status"] == "FAILED"))
    page = open_page(f"/runs/{job}?tab=timeline")
    rows = page.get_by_role("table", name="Attempts").get_by_role("row")
    expect(rows).to_have_count(3)
    for number in (1, 2):
        expect(rows.nth(number)).to_contain_text(re.compile(r"\d ms.*[kM]B"))


def test_a_worker_and_a_queue_lead_to_their_runs(open_page: Open, server: httpx.Client) -> None:
    job = create(server, command="true")
    until(lambda: bool(server.get(f"/v1/runs/{job}").json()["status"] == "SUCCESS"))
    [worker, *_] = server.get("/v1/workers").json()["workers"]
    page = open_page("/workers")
    page.get_by_role("table", name="Workers").get_by_role("link", name=worker["name"]).first.click()
    expect(page).to_have_url(re.compile(f"/ui/workers/{worker['worker_id']}"))
    page.get_by_role("link", name="shell", exact=True).click()
    expect(page).to_have_url(re.compile(f"/ui/runs\\?worker={worker['worker_id']}"))
    expect(page.get_by_role("table", name="Runs").get_by_role("row").nth(1)).to_be_visible()
    page.goto("/ui/queues?q=defau")
    page.get_by_role("table", name="Queues").get_by_role("link", name="default").click()
    expect(page).to_have_url(re.compile(r"/ui/queues/default"))


def test_the_palette_finds_queues_workflows_and_verbs(open_page: Open, server: httpx.Client) -> None:
    flow = f"flow-{uuid4().hex[:8]}"
    steps = [{"name": "only", "command": "true"}]
    server.post("/v1/workflows", json={"workflow_id": flow, "steps": steps}).raise_for_status()
    page = open_page("/settings")
    is_loaded(page)
    for text, option, place in (
        (flow, f"Workflow {flow}", f"/ui/workflows/{flow}"),
        ("defa", "Queue default", r"/ui/queues\?q=default"),
        ("show backf", "Verb Show backfills", r"/ui/operations\?tab=backfills"),
    ):
        page.keyboard.press("Control+k")
        page.get_by_role("dialog").get_by_role("combobox").fill(text)
        page.get_by_role("dialog").get_by_role("option", name=option).first.click()
        expect(page).to_have_url(re.compile(place))


def _resumed_with_missed_fires(server: httpx.Client, job: str) -> bool:
    """Fires of a pause are recorded as missed when it ends. While it is paused, a backfill waits."""
    server.post(f"/v1/jobs/{job}:resume", json={}).raise_for_status()
    if server.get("/v1/missed-fires", params={"job": job}).json()["missed"]:
        return True
    server.post(f"/v1/jobs/{job}:pause", json={}).raise_for_status()
    return False


def _operation(server: httpx.Client) -> dict[str, object]:
    job = create(server, command="true", schedule="@yearly")
    chosen = {"verb": "pause", "ids": [job], "expected": 1}
    made: dict[str, object] = server.post("/v1/jobs:act", json=chosen).raise_for_status().json()
    return made
