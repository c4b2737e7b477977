"""Verbs on many in the dashboard: the count first, then progress; and changes that meet a newer version."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open
from tests.ui.test_flows import confirm, create

expect.set_options(timeout=PATIENCE * 1000)


def done(page: Page, words: str) -> None:
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_contain_text(words)
    dialog.get_by_role("button", name="Close", exact=True).last.click()
    expect(dialog).to_have_count(0)


@pytest.mark.slow
@pytest.mark.parametrize("phone", [False, True], ids=["wide", "phone"])
def test_pause_all_that_match(open_page: Open, server: httpx.Client, phone: bool) -> None:
    queue = f"q{uuid4().hex[:6]}"
    jobs = [create(server, command="true", schedule="@yearly", queue=queue) for _ in range(3)]
    other = create(server, command="true", schedule="@yearly")
    page = open_page(f"/jobs?queue={queue}", phone=phone, dark=phone)
    page.get_by_role("table", name="Jobs").get_by_role("checkbox").nth(0 if phone else 1).check()
    expect(page.get_by_text("1 selected").or_(page.get_by_text("3 selected"))).to_be_visible()
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("toolbar").get_by_role("button", name="Pause", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Pause: 3 jobs?")
    expect(dialog).to_contain_text(f"queue {queue}")
    confirm(page, "Pause 3 jobs")
    done(page, "Done: 3 of 3 done.")
    expect(page.get_by_role("table", name="Jobs").get_by_text("Paused")).to_have_count(3)
    assert {server.get(f"/v1/jobs/{job}").json()["status"] for job in jobs} == {"PAUSED"}
    assert server.get(f"/v1/jobs/{other}").json()["status"] == "SCHEDULED"


def test_ticked_jobs_are_one_call_and_a_refusal_is_told(open_page: Open, server: httpx.Client) -> None:
    queue = f"q{uuid4().hex[:6]}"
    jobs = [create(server, command="true", schedule="@yearly", queue=queue) for _ in range(2)]
    page = open_page(f"/jobs?queue={queue}")
    page.get_by_role("checkbox", name="Select all rows of this page").check()
    page.get_by_role("toolbar").get_by_role("button", name="Pause", exact=True).click()
    server.delete(f"/v1/jobs/{jobs[0]}").raise_for_status()
    with page.expect_request("**/v1/jobs:act") as asked:
        confirm(page, "Pause 2 jobs")
    assert sorted((asked.value.post_data_json or {})["ids"]) == sorted(jobs)
    expect(page.get_by_role("dialog")).to_contain_text("CANCELLED")
    done(page, "Done: 1 of 2 done, 1 refused.")


def test_waiting_runs_are_cancelled_and_dead_letters_discarded_by_filter(open_page: Open, server: httpx.Client) -> None:
    task, queue = f"nobody.{uuid4().hex[:6]}", f"q{uuid4().hex[:6]}"
    for _ in range(2):
        create(server, task=task, queue=queue)
    page = open_page(f"/runs?task={task}&status=pending")
    page.get_by_role("checkbox", name="Select all rows of this page").check()
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("toolbar").get_by_role("button", name="Cancel", exact=True).click()
    confirm(page, "Cancel 2 runs")
    done(page, "Done: 2 of 2 done.")
    assert {run["status"] for run in server.get("/v1/runs", params={"task": task}).json()["runs"]} == {"CANCELLED"}
    job = create(server, task="shop.charge", payload={"account": "broken", "cents": 9})
    page.goto(f"/ui/dead-letters?job={job}")
    expect(page.get_by_role("table", name="Dead letters", exact=True)).to_contain_text("there is no account")
    page.get_by_role("button", name="Discard these").click()
    confirm(page, "Discard 1 dead letter")
    done(page, "Done: 1 of 1 done.")
    expect(page.get_by_text("No dead letter matches")).to_be_visible()


def test_a_change_to_an_older_version_is_told(open_page: Open, server: httpx.Client) -> None:
    queue = f"q{uuid4().hex[:6]}"
    job = create(server, command="true", schedule="@yearly", queue=queue)
    page = open_page("/queues")
    page.get_by_role("button", name=f"Pause {queue}").click()
    server.put(f"/v1/queues/{queue}", json={"concurrency": 3}).raise_for_status()
    confirm(page, "Pause the queue")
    expect(page.get_by_role("dialog")).to_contain_text("Somebody has changed it since this page read it")
    assert server.get(f"/v1/queues/{queue}").json()["paused"] is False
    page.goto(f"/ui/jobs/{job}")
    page.get_by_role("button", name="Cancel for good").click()
    server.patch(f"/v1/jobs/{job}", json={"description": "changed"}).raise_for_status()
    confirm(page, "Cancel the job")
    expect(page.get_by_role("dialog")).to_contain_text("Somebody has changed it")
    assert server.get(f"/v1/jobs/{job}").json()["status"] == "SCHEDULED"


def test_missed_fires_of_all_jobs_are_listed(open_page: Open, server: httpx.Client) -> None:
    late = {"schedule": {"at": "2020-01-01T00:00:00Z"}, "misfire": {"policy": "skip"}}
    job = create(server, command="true", **late)
    until(lambda: bool(server.get("/v1/missed-fires", params={"job": job}).json()["missed"]))
    page = open_page(f"/missed?job={job}", phone=True, dark=True)
    expect(page.get_by_role("table", name="Missed fires")).to_contain_text("1 fire")
