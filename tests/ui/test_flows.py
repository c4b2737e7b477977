"""What people do with the dashboard."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx
from playwright.sync_api import Page, expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open

expect.set_options(timeout=PATIENCE * 1000)


def confirm(page: Page, verb: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()


def create(server: httpx.Client, **fields: object) -> str:
    created: str = server.post("/v1/jobs", json=fields).raise_for_status().json()["job_id"]
    return created


def test_a_cron_job_is_created_and_fires(open_page: Open) -> None:
    page = open_page("/jobs")
    page.get_by_role("link", name="Create a job").click()
    page.get_by_label("Name", exact=True).fill(name := f"Every second {uuid4().hex[:6]}")
    page.get_by_label("Command", exact=True).fill("echo hello")
    page.get_by_label("Cron line").fill("99 * * * *")
    expect(page.get_by_role("alert").first).to_contain_text("99")
    page.get_by_label("Cron line").fill("* * * * * *")
    expect(page.get_by_role("list", name="Next fires").get_by_role("listitem")).to_have_count(10)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    rows = page.get_by_role("table", name="Runs of the job").get_by_role("row")
    expect(rows.filter(has_text="Success").first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    confirm(page, "Pause")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Paused")


def test_the_first_run_is_shown_at_once_where_the_pointer_is(open_page: Open, server: httpx.Client) -> None:
    job = create(server, command="true", schedule="0 0 1 1 *")
    page = open_page(f"/jobs/{job}")
    page.get_by_text("No runs yet").hover()
    server.post(f"/v1/jobs/{job}:runNow", json={}).raise_for_status()
    rows = page.get_by_role("table", name="Runs of the job").get_by_role("row")
    expect(rows.filter(has_text="Success").first).to_be_visible()


def test_a_log_is_followed_and_its_run_cancelled(open_page: Open, server: httpx.Client) -> None:
    job = create(server, task="shop.talk")
    page = open_page(f"/runs/{job}", phone=True, dark=True)
    log = page.get_by_role("log")
    expect(log).to_contain_text("<b>bold</b>")
    expect(log).to_contain_text(re.compile(r"line [1-9]"))
    page.get_by_label("Find in the log").fill("line 3")
    expect(page.get_by_role("region", name="Log").get_by_role("status")).to_contain_text("1/")
    page.get_by_role("button", name="Cancel").click()
    confirm(page, "Cancel the run")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cancelled")


def test_a_large_log_opens_at_its_end_and_is_read_back_and_searched(open_page: Open, server: httpx.Client) -> None:
    job = create(server, command="seq 100001 160000")
    page = open_page(f"/runs/{job}")
    region, log = page.get_by_role("region", name="Log"), page.get_by_role("log")
    rows = log.locator("div > div > span[dir]")
    expect(log.get_by_text("160000", exact=True)).to_be_visible()
    expect(log.get_by_text("60000", exact=True)).to_be_visible()  # the number of the line
    assert rows.count() <= 200
    log.evaluate("box => { box.scrollTop = 0 }")
    expect(log.get_by_text("159490", exact=True)).to_be_attached()  # above what was loaded at first
    page.get_by_role("button", name="Beginning of the log").click()
    expect(log.get_by_text("100001", exact=True)).to_be_visible()
    page.get_by_label("Find in the log").fill("31415")
    expect(region.get_by_role("status")).to_have_text("1/1")
    expect(log.get_by_text("131415", exact=True)).to_be_visible()
    expect(log.get_by_text("31415", exact=True)).to_be_visible()
    page.get_by_label("Find in the log").fill("00")
    expect(region.get_by_role("status")).to_contain_text("1/")
    page.get_by_role("button", name="Previous match").click()
    expect(region.get_by_role("status")).not_to_contain_text(re.compile("^1/"))
    assert rows.count() <= 200
    page.get_by_role("button", name="End of the log").click()
    expect(log.get_by_text("160000", exact=True)).to_be_visible()


def test_a_command_shows_what_its_processes_use(open_page: Open, server: httpx.Client) -> None:
    job = create(server, command="exec sleep 600")
    page = open_page(f"/runs/{job}")
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"Memory, at most.* now", re.DOTALL))
    page.get_by_role("button", name="Cancel").click()
    confirm(page, "Cancel the run")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cancelled")
    expect(page.get_by_role("main")).to_contain_text("CPU time")


def test_a_dead_letter_is_replayed_with_another_payload(open_page: Open, server: httpx.Client) -> None:
    job = create(
        server, task="shop.charge", payload={"account": "broken", "cents": 9}, name=f"Charge {uuid4().hex[:6]}"
    )
    page = open_page(f"/dead-letters?job={job}")
    expect(page.get_by_role("table", name="Dead letters", exact=True)).to_contain_text("there is no account")
    page.get_by_role("button", name=re.compile("^Replay Charge")).click()
    page.get_by_role("dialog").get_by_label("account *").fill("a1")
    confirm(page, "Replay")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Success")
    page.get_by_role("link", name="Data").click()
    expect(page.get_by_label("payload", exact=True)).to_contain_text('"a1"')
    expect(page.get_by_label("result", exact=True)).to_contain_text('"charged": 9')


def test_a_queue_is_paused_and_its_run_says_why_it_waits(open_page: Open, server: httpx.Client) -> None:
    queue = f"q{uuid4().hex[:6]}"
    job = create(server, command="true", queue=queue)
    page = open_page("/queues", phone=True, dark=True)
    page.get_by_role("button", name=f"Pause {queue}").click()
    confirm(page, "Pause the queue")
    expect(page.get_by_role("button", name=f"Resume {queue}")).to_be_visible()
    page.goto(f"/ui/runs/{job}")
    expect(page.get_by_text("Why it waits")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("paused")


def test_a_change_that_somebody_else_has_made_is_not_overwritten(open_page: Open, server: httpx.Client) -> None:
    job = create(server, job_id=f"c{uuid4().hex[:8]}", command="true", schedule="0 0 1 1 *")
    page = open_page(f"/jobs/new?edit={job}")
    page.get_by_label("Owner").fill("ada")
    server.patch(f"/v1/jobs/{job}", json={"description": "changed meanwhile"}).raise_for_status()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Somebody has changed it")).to_be_visible()
    page.get_by_role("button", name="Put my changes on top").click()
    expect(page.get_by_text("Somebody has changed it")).to_be_hidden()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Run now")).to_be_visible()
    found = server.get(f"/v1/jobs/{job}").json()
    assert (found["owner"], found["description"]) == ("ada", "changed meanwhile")


def test_a_workflow_is_followed_in_its_graph_and_run_again(open_page: Open, server: httpx.Client) -> None:
    steps = [
        {"name": "load", "command": "true"},
        {"name": "bad", "command": "exit 3", "retries": 0, "depends_on": ["load"]},
        {"name": "last", "command": "true", "depends_on": ["bad"]},
    ]
    flow = f"w{uuid4().hex[:6]}"
    server.post("/v1/workflows", json={"workflow_id": flow, "steps": steps}).raise_for_status()
    page = open_page(f"/workflows/{flow}")
    page.get_by_role("button", name="Run now").click()
    confirm(page, "Run now")
    graph = page.get_by_role("group", name="Graph of the steps")
    expect(graph.get_by_role("button", name="load Success")).to_be_visible()
    expect(graph.get_by_role("button", name="bad Failed")).to_be_visible()
    graph.get_by_role("button", name="last Skipped").click()
    page.get_by_role("button", name="Rerun what failed").click()
    confirm(page, "Rerun")
    expect(page.get_by_text("rerun", exact=False).first).to_be_visible()
    page.goto(f"/ui/workflows/{flow}?view=grid")
    grid = page.get_by_role("group", name="Runs and steps")
    grid.get_by_role("link", name="bad: Failed").click()
    expect(graph.get_by_role("button", name="bad Failed", pressed=True)).to_be_visible()
    page.goto(f"/ui/workflows/{flow}?view=definition")
    graph.get_by_role("button", name="last true").click()
    expect(page.get_by_label("step last", exact=True)).to_contain_text('"depends_on"')


def test_without_a_session_the_page_asks_for_a_token(server: httpx.Client, open_page: Open) -> None:
    page = open_page("/jobs?q=x")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").fill("ms_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill(server.headers["Authorization"].removeprefix("Bearer "))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()


def test_a_replay_waits_since_it_was_created_and_jobs_are_found_by_task_and_type(
    open_page: Open, server: httpx.Client
) -> None:
    name = f"Old {uuid4().hex[:6]}"
    first = create(server, command="true", name=name, schedule={"at": "2025-01-01T00:00:00Z"})
    page = open_page(f"/runs/{first}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Success")
    again = server.post(f"/v1/runs/{first}:retry", json={}).raise_for_status().json()["run_id"]
    page.goto(f"/ui/runs/{again}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Success")
    waited = page.locator("dl, div").filter(has_text=re.compile(r"^Waited")).last
    expect(waited).not_to_contain_text(re.compile(r"\d ?d"))
    weekly = create(server, task="shop.charge", payload={"account": "a1", "cents": 1}, name=name, cron="@weekly")
    page.goto(f"/ui/jobs?task=shop.charge&type=CRON&q={name.split()[1]}")
    table = page.get_by_role("table", name="Jobs", exact=True)
    expect(table).to_contain_text(name)
    page.goto(f"/ui/jobs?task=shop.charge&type=INTERVAL&q={name.split()[1]}")
    expect(page.get_by_text("No job matches.")).to_be_visible()
    server.delete(f"/v1/jobs/{weekly}").raise_for_status()
