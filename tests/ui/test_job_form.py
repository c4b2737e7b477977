"""The form of a job: the server explains the schedule while it is typed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from uuid import uuid4

import httpx
from playwright.sync_api import Page, expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.serving import ROOT

expect.set_options(timeout=PATIENCE * 1000)


def shows(page: Page, job: str) -> None:
    """The page of the job, not the form."""
    expect(page).to_have_url(re.compile(f"/ui/jobs/{job}$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text(job)


def test_a_schedule_is_explained_while_it_is_typed(open_page: Open) -> None:
    page = open_page("/jobs/new")
    page.get_by_label("Cron line").fill("30 2 * * *")
    fires = page.get_by_role("list", name="Next fires").get_by_role("listitem")
    expect(fires).to_have_count(10)
    page.get_by_label("Zone", exact=True).fill("Europe/Berln")
    expect(page.get_by_role("alert").filter(has_text="Europe/Berln")).to_be_visible()
    expect(fires).to_have_count(0)
    page.get_by_label("Zone", exact=True).fill("Europe/Berlin")
    expect(page.get_by_text("At 02:30, every day, Europe/Berlin")).to_be_visible()
    expect(page.get_by_text("02:30 does not exist on")).to_be_visible()
    page.get_by_label("Jitter").fill("soon")
    expect(page.get_by_role("alert").filter(has_text="soon")).to_be_visible()


def test_an_edit_keeps_what_the_form_does_not_change(open_page: Open, server: httpx.Client) -> None:
    job = f"e{uuid4().hex[:8]}"
    schedule = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}, "max_runs": 9}
    server.post("/v1/jobs", json={"job_id": job, "command": "true", "schedule": schedule}).raise_for_status()
    page = open_page(f"/jobs/new?edit={job}")
    page.get_by_label("Cron line").fill("45 2 * * *")
    expect(
        page.get_by_text("At 02:45, every day, Europe/Berlin, a skipped time does not run, at most 9 runs")
    ).to_be_visible()
    page.get_by_role("button", name="Save").click()
    shows(page, job)
    found = server.get(f"/v1/jobs/{job}").json()
    assert (found["cron_expression"], found["dst"], found["max_runs"]) == ("45 2 * * *", {"gap": "skip"}, 9)


def test_an_edit_keeps_what_the_form_does_not_show(open_page: Open, server: httpx.Client) -> None:
    job = f"e{uuid4().hex[:8]}"
    call = {"url": "http://127.0.0.1:9/x", "headers": {"x-a": "b"}, "body": {"n": 1}}
    server.post("/v1/jobs", json={"job_id": job, "http": call, "schedule": "manual"}).raise_for_status()
    page = open_page(f"/jobs/new?edit={job}")
    page.get_by_label("URL").fill("http://127.0.0.1:9/y")
    page.get_by_role("button", name="Save").click()
    shows(page, job)
    assert server.get(f"/v1/jobs/{job}").json()["http"] == {**call, "url": "http://127.0.0.1:9/y", "method": "POST"}


def test_a_job_of_another_kind_is_shown_edited_and_copied(open_page: Open, server: httpx.Client) -> None:
    """The form does not know the kind. The page shows what it runs, and the form keeps it."""
    job, copy = f"q{uuid4().hex[:8]}", f"q{uuid4().hex[:8]}"
    call = {"connection": "warehouse", "statement": "refresh materialized view sales", "parameters": [1]}
    server.post("/v1/jobs", json={"job_id": job, "sql": call, "schedule": "manual"}).raise_for_status()
    page = open_page(f"/jobs/{job}?tab=definition")
    for words in ("sql: statement", "refresh materialized view sales", "sql: connection", "warehouse"):
        expect(page.get_by_text(words, exact=True)).to_be_visible()
    page.goto(f"/ui/jobs/new?edit={job}")
    page.get_by_label("Owner").fill("me")
    page.get_by_role("button", name="Save").click()
    shows(page, job)
    found = server.get(f"/v1/jobs/{job}").json()
    assert (found["task"], found["sql"], found["owner"]) == ("sql", call, "me")
    page.goto(f"/ui/jobs/new?from={job}")
    page.get_by_label("Id", exact=True).fill(copy)
    page.get_by_role("button", name="Create").click()
    shows(page, copy)
    assert server.get(f"/v1/jobs/{copy}").json()["sql"] == call


def test_a_copy_means_the_same(open_page: Open, server: httpx.Client) -> None:
    source, copy = f"s{uuid4().hex[:8]}", f"c{uuid4().hex[:8]}"
    body = {
        "job_id": source, "command": ["printf", "%s\\n", "it's  two"], "schedule": "manual", "env": {"A": "1"},
        "retry": {"max_attempts": 3, "backoff": "linear", "base": 7}, "misfire": {"policy": "all", "cap": 7},
    }  # fmt: skip
    server.post("/v1/jobs", json=body).raise_for_status()
    page = open_page(f"/jobs/new?from={source}")
    page.get_by_label("Id", exact=True).fill(copy)
    page.get_by_role("button", name="Create").click()
    shows(page, copy)
    first, second = (server.get(f"/v1/jobs/{job}").json() for job in (source, copy))
    assert second["command"] == r"printf '%s\n' 'it'\''s  two'"
    for field in ("env", "retry", "misfire", "schedule", "queue", "timeout"):
        assert second[field] == first[field], field


def test_what_was_typed_before_does_not_undo_what_others_changed(open_page: Open, server: httpx.Client) -> None:
    job = f"e{uuid4().hex[:8]}"
    server.post("/v1/jobs", json={"job_id": job, "command": "true", "schedule": "0 1 * * *"}).raise_for_status()
    page = open_page(f"/jobs/new?edit={job}")
    expect(page.get_by_label("Cron line")).to_have_value("0 1 * * *")
    page.get_by_role("link", name="Back").click()
    server.patch(f"/v1/jobs/{job}", json={"schedule": "0 2 * * *"}).raise_for_status()
    page.goto(f"/ui/jobs/new?edit={job}")
    expect(page.get_by_label("Cron line")).to_have_value("0 2 * * *")  # nothing was typed, so nothing was kept
    page.get_by_label("Owner").fill("me")
    page.get_by_role("link", name="Back").click()
    server.patch(f"/v1/jobs/{job}", json={"schedule": "0 3 * * *"}).raise_for_status()
    page.goto(f"/ui/jobs/new?edit={job}")
    expect(page.get_by_text("What you typed here before")).to_be_visible()
    expect(page.get_by_label("Owner")).to_have_value("me")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Somebody has changed it")).to_be_visible()
    page.get_by_role("button", name="Put my changes on top").click()
    expect(page.get_by_label("Cron line")).to_have_value("0 3 * * *")
    page.get_by_role("button", name="Save").click()
    shows(page, job)
    found = server.get(f"/v1/jobs/{job}").json()
    assert (found["cron_expression"], found["owner"]) == ("0 3 * * *", "me")
    page.goto(f"/ui/jobs/new?edit={job}")
    expect(page.get_by_label("Owner")).to_have_value("me")
    expect(page.get_by_text("What you typed here before")).to_have_count(0)


def test_long_numbers_keep_their_digits(open_page: Open, server: httpx.Client) -> None:
    job, number = f"n{uuid4().hex[:8]}", 9007199254740993
    body = {"job_id": job, "task": "shop.charge", "payload": {"account": "a", "cents": number}, "schedule": "manual"}
    server.post("/v1/jobs", json=body).raise_for_status()
    page = open_page(f"/jobs/new?edit={job}")
    expect(page.get_by_label("cents")).to_have_value(str(number))
    page.get_by_label("account").fill("b")
    page.get_by_role("button", name="Save").click()
    shows(page, job)
    assert server.get(f"/v1/jobs/{job}").json()["payload"] == {"account": "b", "cents": number}


def test_the_command_of_a_draft_creates_the_same_job(open_page: Open, server: httpx.Client) -> None:
    job = f"d{uuid4().hex[:8]}"
    page = open_page("/jobs/new")
    for label, value in (
        ("Name", "it's; $(x)"), ("Command", "echo 'a  b'"), ("Cron line", "0 4 * * *"), ("Attempts", "3"),
        ("Labels", "team=a b, x=y"), ("Owner", "me"),
    ):  # fmt: skip
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_label("Id", exact=True).fill(job)
    page.get_by_text("As a command or JSON").click()
    words = shlex.split(page.locator("pre").filter(has_text="mainspring submit").inner_text())
    token = server.headers["Authorization"].removeprefix("Bearer ")
    environment = os.environ | {"MAINSPRING_URL": str(server.base_url), "MAINSPRING_TOKEN": token}
    subprocess.run([sys.executable, "-m", *words], check=True, env=environment, cwd=ROOT, capture_output=True)
    found = server.get(f"/v1/jobs/{job}").json()
    assert (found["name"], found["command"], found["cron_expression"]) == ("it's; $(x)", "echo 'a  b'", "0 4 * * *")
    assert (found["retry"]["max_attempts"], found["labels"], found["owner"]) == (3, {"team": "a b", "x": "y"}, "me")
