"""Dialogs take what one types, and lists keep what matters where there is little room."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.serving import is_loaded

expect.set_options(timeout=PATIENCE * 1000)
LONG = "worker-" + "x" * 120
ERROR = "ConnectionError: the database at db.internal.example.com:5432 refused the connection of the worker"


def test_the_palette_takes_what_one_types(open_page: Open) -> None:
    page = open_page("/settings")
    is_loaded(page)
    for opens in (lambda: page.keyboard.press("Control+k"), lambda: page.get_by_role("button", name="Search").click()):
        opens()
        expect(page.get_by_role("combobox", name="Search")).to_be_focused()
        page.keyboard.type("queues")
        expect(page.get_by_role("combobox", name="Search")).to_have_value("queues")
        page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    expect(page.get_by_role("button", name="Close")).not_to_be_focused()


def test_a_dialog_with_a_field_takes_what_one_types(open_page: Open, server: httpx.Client) -> None:
    server.put("/v1/queues/typed-into", json={"concurrency": 3})
    page = open_page("/queues?q=typed-into")
    page.get_by_role("button", name="limits of typed-into").click()
    expect(page.get_by_label("Runs at once")).to_be_focused()


def rows(server: httpx.Client) -> dict[str, Any]:
    """One row of each list, with a long name and a long error, by the path of the list."""
    job = server.post("/v1/jobs", json={"command": "exit 1", "retries": 0, "name": "Charge all customers"})
    run = server.get(f"/v1/runs/{job.raise_for_status().json()['job_id']}").json()
    run |= {"executor": LONG, "executor_id": "w1", "error_message": ERROR, "status": "FAILED", "duration": 1.25}
    queue = server.put("/v1/queues/narrow", json={"concurrency": 3, "rate": "100/m"}).raise_for_status()
    assert queue.status_code == 200
    [queue_row] = [one for one in server.get("/v1/queues").json()["queues"] if one["name"] == "narrow"]
    [worker, *_] = server.get("/v1/workers").json()["workers"]
    at = run["scheduled_for"]
    group = {
        "fingerprint": "f1", "title": ERROR, "count": 1234, "failed": 321, "jobs": 12,
        "tasks": ["shop.charge_all_customers_of_the_month"], "job_ids": ["billing.monthly.of.the.customers"],
        "first": at, "last": at, "series": [1, 2, 3], "sample_run": run["run_id"],
    }  # fmt: skip
    latest = {"run_id": run["run_id"], "status": "FAILED", "duration": 12.5}
    row = server.get("/v1/jobs", params={"q": "narrow-row", "view": "row"}).json()["jobs"]
    if not row:
        server.post("/v1/jobs", json={"job_id": "narrow-row", "command": "true", "schedule": "0 9 * * MON-FRI"})
        row = server.get("/v1/jobs", params={"q": "narrow-row", "view": "row"}).json()["jobs"]
    return {
        "/runs": {"runs": [run], "next": None},
        "/jobs": {"jobs": [row[0] | {"latest_run": latest, "owner": "o" * 60, "name": "Charge all"}], "next": None},
        "/queues": {"queues": [queue_row | {"oldest_seconds": 4000, "depth": 120, "rate": 3.5, "workers": 2}]},
        "/failures": {"groups": [group], "left_out": 0},
        "/workers": {"workers": [worker | {"name": LONG, "labels": {"zone": "eu-central-1", "pool": "gpu"}}]},
    }


SOURCES = {"/failures": "**/v1/insights/failures*"}
# What one comes to the page for: these columns are there, and wide enough to read.
KEPT = {
    "/runs": {"State": 60, "Job": 110, "Error": 180},
    "/jobs": {"State": 60, "Job": 140, "Schedule": 60, "Next fire": 60, "Last run": 60},
    "/queues": {"Queue": 100, "State": 60, "Waiting": 40, "Oldest": 40, "Verbs": 60},
    "/failures": {"Error": 220, "Failed attempts": 40, "Last": 40},
    "/workers": {"State": 60, "Worker": 140, "Busy": 60, "Last beat": 60, "Verbs": 60},
}
HEADS = """tables => tables.flatMap(table => {
  const frame = table.parentElement.getBoundingClientRect();
  return [...table.querySelectorAll('th')].map(head => {
    const box = head.getBoundingClientRect();
    return [head.innerText.trim(), box.width, box.right <= frame.right + 1 && box.width > 0];
  });
})"""


def _answered(page: Page, path: str, body: Any) -> None:
    page.route(SOURCES.get(path, f"**/v1{path}*"), lambda route: route.fulfill(json=body))


@pytest.mark.parametrize("width", [1024, 1440])
def test_columns_give_way_in_the_order_of_importance(open_page: Open, server: httpx.Client, width: int) -> None:
    page = open_page("/settings")
    page.set_viewport_size({"width": width, "height": 800})
    faults = []
    for path, body in rows(server).items():
        _answered(page, path, body)
        page.goto("/ui" + path)
        page.locator("tbody tr").first.wait_for()
        seen = {name: (wide, shown) for name, wide, shown in page.locator("main table").evaluate_all(HEADS)}
        if page.locator("main table").evaluate("table => table.scrollWidth > table.parentElement.clientWidth + 1"):
            faults.append(f"{path} has to be scrolled sideways")
        for name, least in KEPT[path].items():
            wide, shown = seen.get(name, (0, False))
            if not shown or wide < least:
                faults.append(f"{path}: {name} has {wide:.0f} px")
    page.unroute_all(behavior="ignoreErrors")
    assert faults == []
